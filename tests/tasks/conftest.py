from tests.worker.workshop import configure, own_registries, project  # noqa: F401
