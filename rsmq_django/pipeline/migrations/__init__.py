"""Migrations of the tables of the pipeline.

Projects that do not install `rsmq_django.pipeline` do not have them.
"""
