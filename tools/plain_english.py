"""Counts phrases that are not plain English in the texts of this project: how many per 1,000 lines, and where.

    python tools/plain_english.py [--list] [--limit RATE] [PATH ...]

Without a PATH it counts everything that tests/test_plain_english.py counts, which shares these patterns. --list prints
every place. The exit status is 1 when the rate is above the limit.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = ("rsmq_django", "docs", "README.md", "CHANGELOG.md", "SECURITY.md", "example_project")
SUFFIXES = {".css", ".html", ".js", ".lua", ".md", ".py", ".toml", ".txt"}
SKIPPED_FOLDERS = {"__pycache__", "images", "locale", "migrations", "node_modules"}

#: What to write instead -> the phrase. docs/reference/glossary.md has the words of this project.
PATTERNS = {
    "name the actor: another worker, a consumer": re.compile(
        r"\b(some|no|any)(body|one) "
        r"(else|has|is|waits|looks|takes|reads|knows|can|may|will|asks|noticed|renews|works|fired|looked)"
        r"|\b(some|no|any)body\b"
    ),
    "name it: any value, the process that": re.compile(r"\b[Ww]ho(m)?ever\b|\b[Ww]hatever\b"),
    "a noun in place of a clause: the backlog, not what waits": re.compile(
        r"\b[Ww]hat (is|was|became|becomes|lies|stands|has|waits|comes|it holds|they hold|ended|ran|runs|travels"
        r"|failed|others)\b(?!\?)"
    ),
    "is not a ...": re.compile(
        r"\b(is|are|was|has|answers with) no "
        r"(number|whole|name|queue|set|reply|order|task|time|such|URL|string|list|valid|JSON|message)\b"
        r"|\bis none of\b|\bare none\b"
    ),
    "repair, fix": re.compile(r"\b[Mm]end(s|ed|ing)?\b"),
    "up to N, N seconds": re.compile(
        r"\b(at most|for|after|in|of|below) so (many|long|much)\b|\bso many seconds\b|\bfor so long\b"
    ),
    "forever": re.compile(r"\bfor ever\b"),
    "is stored in, is in": re.compile(
        r"\b(stands|lies|lie|stand) (in|for|beside|behind|below|under|there|elsewhere|at)\b"
    ),
    "name it: the message that": re.compile(r"\b([Oo]ne|[Tt]hose|[Tt]hat) (that|of which|who|whose)\b"),
    "anyway, automatically, delays": re.compile(
        r"\ball the same\b|\bholds? (\w+ )?up\b|\bin vain\b|\bgoes? on by (itself|themselves)\b"
    ),
}


@dataclass(frozen=True)
class Hit:
    """One phrase, and where it was found."""

    path: str
    line: int
    phrase: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.phrase!r} in: {self.text[:100]}"


@dataclass(frozen=True)
class Count:
    """The hits in a number of lines."""

    lines: int
    hits: tuple[Hit, ...]

    @property
    def rate(self) -> float:
        """Return the number of hits per 1,000 lines."""
        return 1000 * len(self.hits) / max(self.lines, 1)

    def worst(self) -> dict[str, int]:
        """Return the number of hits of each file, the largest first."""
        counts: dict[str, int] = {}
        for hit in self.hits:
            counts[hit.path] = counts.get(hit.path, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))


def text_files(paths: Iterable[str]) -> Iterator[Path]:
    """Yield the text files in these files and folders, which are relative to the project."""
    for path in (ROOT / name for name in paths):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            folders = file.relative_to(ROOT).parts[:-1]
            if file.suffix in SUFFIXES and not SKIPPED_FOLDERS.intersection(folders) and file.is_file():
                yield file


def count(paths: Iterable[str]) -> Count:
    """Return the hits in all text files of these files and folders."""
    lines, hits = 0, []
    for file in text_files(paths):
        for number, line in enumerate(file.read_text("utf-8").split("\n"), 1):
            lines += 1
            hits += [
                Hit(str(file.relative_to(ROOT)), number, found[0], line.strip())
                for pattern in PATTERNS.values()
                for found in pattern.finditer(line)
            ]
    return Count(lines, tuple(hits))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PATH", default=DEFAULT)
    parser.add_argument("--list", action="store_true", help="Print every place.")
    parser.add_argument("--limit", type=float, default=1.5, help="Highest rate that is accepted (default: 1.5).")
    options = parser.parse_args()
    counted = count([str(Path(path).resolve().relative_to(ROOT)) for path in options.paths])
    for advice, pattern in PATTERNS.items():
        hits = [hit for hit in counted.hits if pattern.search(hit.phrase)]
        print(f"{1000 * len(hits) / max(counted.lines, 1):6.2f}  {advice} ({len(hits)})")
        if options.list:
            print(*(f"        {hit}" for hit in hits), sep="\n")
    print(f"{counted.rate:6.2f}  in all, per 1,000 of {counted.lines:,} lines (limit: {options.limit})")
    return int(counted.rate > options.limit)


if __name__ == "__main__":
    sys.exit(main())
