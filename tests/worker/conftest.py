from tests.worker.processes import journal, start_worker  # noqa: F401
from tests.worker.workshop import configure, late_interruption, own_registries, patient_workers, project, time_is_up  # noqa: F401
