"""Fixtures of tests that meet result records: settings of a project."""

from tests.worker.workshop import configure, own_registries, patient_workers, project

__all__ = ["configure", "own_registries", "patient_workers", "project"]
