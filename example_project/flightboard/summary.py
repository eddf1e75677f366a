"""Print the outcomes of a replayed day. Knows how the figures look; `stock.py` knows their source."""

from rich import box
from rich.console import Console
from rich.table import Table

from .stock import Balance

HOW_COUNTED = (
    "How counted: sent and deliveries are RSMQ's own counters; retries are deliveries beyond the first, "
    "including messages that waited for a limit; dead letters "
    "are in the queues <name>-dead; succeeded counts what tasks left in the database: lines of the work log, and "
    "weather reports for the raw queue."
)


def print_summary(console: Console, title: str, balance: Balance, *, wall_s: float) -> None:
    """Print a table of the queues, one of the reasons of dead letters, and the speed."""
    console.print()
    console.print(f"[bold]{title}[/bold]")
    console.print(_queues(balance))
    if balance.reasons:
        console.print(_reasons(balance))
    rate = balance.settled / wall_s if wall_s else 0
    console.print(f"{balance.settled:,} messages settled in {wall_s:.1f} s: {rate:,.0f} per second, replay included.")
    console.print(HOW_COUNTED, style="dim")


def _queues(balance: Balance) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_footer=True, footer_style="bold")
    table.add_column("queue", "all")
    for name, total in (
        ("sent", balance.sent),
        ("succeeded", balance.settled - balance.dead),
        ("retries", balance.retries),
        ("dead letters", balance.dead),
    ):
        table.add_column(name, f"{total:,}", justify="right")
    for queue in balance.queues:
        figures = (queue.sent, balance.succeeded[queue.name], queue.deliveries - queue.sent, queue.dead)
        table.add_row(queue.name, *(f"{figure:,}" for figure in figures))
    return table


def _reasons(balance: Balance) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("dead letters", justify="right")
    table.add_column("queue")
    table.add_column("error")
    table.add_column("attempts", justify="right")
    table.add_column("why no more")
    for reason, count in balance.reasons.most_common():
        ended = reason.ended.replace("_", " ")
        table.add_row(f"{count:,}", reason.queue, reason.error, str(reason.attempts), ended)
    return table
