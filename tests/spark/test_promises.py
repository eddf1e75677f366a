"""Each row of the table "Guarantees" of docs/how-to/pipeline.md has tests that prove it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_guarantees import names_in

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "pipeline.md").read_text("utf-8")
TABLE = PAGE.partition("\n## Guarantees\n")[2].strip().partition("\n\n")[0]
ROWS = [line.split("|")[1].strip() for line in TABLE.splitlines()[2:]]

#: First column -> the tests of its guarantee, and of what is said about a crash.
PROVED_BY = {
    "snapshot": """
        test_snapshot.py::test_messages_received_or_deleted_while_it_is_read_are_neither_lost_nor_doubled
        test_snapshot.py::test_snapshot_leaves_no_trace
        engine/test_source.py::test_snapshot_equals_the_sent_messages
    """,
    "archive": """
        test_transfer.py::test_two_drivers_at_once_store_each_event_once_and_lose_none
        test_transfer.py::test_two_drivers_that_are_killed_again_and_again_store_each_event_once
        engine/test_archive.py::test_batch_that_was_written_and_not_committed_is_written_again_and_counts_once
        engine/test_archive.py::test_batch_that_was_committed_and_not_trimmed_is_trimmed_by_the_next_run
    """,
    "archive, log trimmed too early": """
        test_transfer.py::test_rows_trimmed_between_plan_and_reading_are_counted_once
        test_runs.py::test_continuous_archive_is_on_record_with_its_losses_while_it_runs
        engine/test_archive.py::test_step_archives_what_is_left_and_reports_the_loss_unless_it_is_strict
    """,
    "archive, another server or a log created again": """
        test_transfer.py::test_each_log_has_a_position_of_its_own_and_is_continued
        test_trimming.py::test_log_that_was_not_read_keeps_its_entries
        engine/test_archive.py::test_log_of_another_server_is_archived_whole_and_then_trimmed
    """,
    "bulk send": """
        test_bulk.py::test_nothing_can_be_received_before_the_commit_and_everything_after_it_in_order
        test_bulk.py::test_crash_at_any_step_of_publishing_is_repaired_by_the_next_run
        test_bulk.py::test_job_that_began_to_publish_is_ended_without_spark
        engine/test_source.py::test_frame_with_a_bad_row_sends_nothing_and_leaves_nothing
    """,
    "archive-topic": """
        test_topics.py::test_each_message_is_one_row_with_key_and_headers_and_stays_in_the_topic
        test_topics.py::test_two_drivers_at_once_store_each_message_once
        test_topics.py::test_two_drivers_that_are_killed_again_and_again_store_each_message_once
        test_topics.py::test_messages_trimmed_unread_are_counted_and_holes_are_not
    """,
    "restore-topic": """
        test_topics.py::test_restored_messages_have_their_order_keys_and_headers
        test_topics.py::test_restore_that_fails_publishes_nothing
        test_topics.py::test_restore_that_died_while_it_published_is_completed_by_the_next_one
    """,
    "drain": """
        test_drain.py::test_claim_that_never_reached_the_checkpoint_comes_first_in_the_next_run
        engine/test_steps.py::test_drained_queue_is_in_the_lake_and_removed_from_redis
    """,
    "rollup": """
        test_rollup.py::test_events_are_counted_once_after_a_crash_at_any_commit
        test_rollup.py::test_two_rollups_at_once_count_each_event_once
        test_rollup.py::test_figures_of_many_small_rollups_are_those_of_a_recomputation_over_all_events
    """,
    "analyse, dlq, publish": """
        test_rollup.py::test_analysis_gives_advice_burn_rates_and_odd_hours
        test_steps.py::test_dead_letters_are_archived_once_and_stay
        ../pipeline/test_publish.py::test_published_days_are_in_the_database_once_and_keep_their_keys
    """,
}


def test_every_row_has_tests_and_every_test_a_row():
    assert len(ROWS) >= 8
    assert list(PROVED_BY) == ROWS
    assert all(tests.split() for tests in PROVED_BY.values())


@pytest.mark.parametrize("test", [test for tests in PROVED_BY.values() for test in tests.split()])
def test_the_test_of_a_row_exists(test: str):
    path, _, name = test.partition("::")
    assert name in names_in(f"spark/{path}")
