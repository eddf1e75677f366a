"""Prints the results of tasks as JSON: reads {name: id of the result} from standard input, prints {name: value}."""

import contextlib
import json
import sys

import django


def main() -> None:
    django.setup()
    from rsmq_django.tasks.compat import TaskResultDoesNotExist
    from tests.faults.project import tasks

    found = {}
    for name, result_id in json.load(sys.stdin).items():
        with contextlib.suppress(TaskResultDoesNotExist):
            result = tasks.kept.get_result(result_id)
            found[name] = result.return_value if result.status == "SUCCESSFUL" else str(result.status)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
