from tests.worker.workshop import configure, no_hang, own_registries, project  # noqa: F401
