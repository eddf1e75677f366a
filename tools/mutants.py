"""Small changes of source files that a test should notice: of Python by its syntax tree, of Lua by its tokens."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, order=True)
class Mutant:
    """One change of one file: these characters become others."""

    path: str
    line: int
    begin: int
    end: int
    before: str
    after: str
    #: Lines whose execution tells that the change can matter, if its own line tells nothing: those of its statement, or
    #: of the function of which it is a default. Empty outside of functions.
    places: tuple[int, ...] = field(default=(), compare=False)

    def applied_to(self, text: str) -> str:
        return text[: self.begin] + self.after + text[self.end :]

    @property
    def change(self) -> str:
        before, after = (" ".join(text.split())[:90] for text in (self.before, self.after))
        return f"{before}  ->  {after}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}"


def mutants_of(root: Path, path: str) -> list[Mutant]:
    """Return all mutants of a file below the root."""
    text = (root / path).read_text("utf-8")
    return sorted(set(_of_lua(path, text) if path.endswith(".lua") else _of_python(path, text)))


# -- Python -----------------------------------------------------------------------------------------------------------

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
#: Functions of which one in the place of the other is a mistake that people make.
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: What is for readers, type checkers or programmers only.
_LEFT_ALONE = ("logger", "warnings", "TYPE_CHECKING")


def _of_python(path: str, text: str) -> Iterator[Mutant]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    raw = text.encode()

    def at(line: int, column: int) -> int:
        return len(raw[: starts[line - 1] + column].decode())

    for node, changed, places in _changes(ast.parse(text)):
        begin = at(node.lineno, node.col_offset)
        end = at(node.end_lineno or node.lineno, node.end_col_offset or 0)
        after = changed if isinstance(changed, str) else f"({ast.unparse(changed)})"
        yield Mutant(path, node.lineno, begin, end, text[begin:end], after, places)


def _changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr | str, tuple[int, ...]]]:
    units = {id(node.right) for node in ast.walk(tree) if isinstance(node, ast.BinOp) and _is_unit(node)}
    for node, places in _worth_changing(tree):
        if isinstance(node, ast.Constant) and id(node) in units:
            yield node, ast.Constant(1), places
        else:
            yield from ((part, changed, places) for part, changed in _changes_of(node))


def _changes_of(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr | str]]:
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in _COMPARED:
            yield node, ast.Compare(left, [_COMPARED[type(operator)]()], [right])
        case ast.BoolOp(operator, values):
            yield node, ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for left_out in values:
                yield node, ast.BoolOp(operator, [value for value in values if value is not left_out])
        case ast.BinOp(left, operator, right) if type(operator) in _COMPUTED and not _is_text(node):
            yield node, ast.BinOp(left, _COMPUTED[type(operator)](), right)
        case ast.UnaryOp(ast.Not(), operand):
            yield node, operand
        case ast.IfExp(test, body, orelse):
            yield node, ast.IfExp(test, orelse, body)
        case ast.Constant(bool() as value):
            yield node, ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield node, ast.Constant(value + 1)
        case ast.Name(id) if id in _SWAPPED:
            yield node, ast.Name(_SWAPPED[id])
        case ast.If(test) | ast.While(test) if not isinstance(test, ast.Constant):
            yield test, ast.UnaryOp(ast.Not(), test)
        case ast.Expr(ast.Call()) | ast.Expr(ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield node, "pass"
        case ast.Break():
            yield node, "continue"
        case ast.Continue():
            yield node, "break"
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield value, ast.Constant(None)


def _worth_changing(node: ast.AST, places: tuple[int, ...] = ()) -> Iterator[tuple[ast.AST, tuple[int, ...]]]:
    """Yield the nodes that make a difference to what the program does, each with its places."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Assert | ast.JoinedStr | ast.Import):
                continue
            if isinstance(child, ast.Expr | ast.If) and any(
                isinstance(each, ast.Name) and each.id in _LEFT_ALONE for each in ast.walk(_head(child))
            ):
                continue
            if isinstance(child, ast.FunctionDef) and child.name == "__repr__":
                continue
            if isinstance(child, ast.keyword) and child.arg == "strict":
                continue  # of zip(): it asserts what the lines around it say
            if isinstance(node, ast.Module) and isinstance(child, ast.Assign) and _is_number(child.value):
                continue  # how long, how many: a test that held it would only repeat it
            inside = _places_of(node, name, child, places)
            yield child, inside
            yield from _worth_changing(child, inside)


def _places_of(node: ast.AST, name: str, child: ast.AST, places: tuple[int, ...]) -> tuple[int, ...]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if name == "args":
            return tuple(range(node.body[0].lineno, (node.end_lineno or 0) + 1))
    elif not places:
        return places
    return (child.lineno,) if isinstance(child, ast.stmt | ast.ExceptHandler) else places


def _head(statement: ast.Expr | ast.If) -> ast.expr:
    return statement.value if isinstance(statement, ast.Expr) else statement.test


def _is_number(value: ast.expr) -> bool:
    return all(
        isinstance(each, ast.Constant | ast.BinOp | ast.operator | ast.Tuple | ast.Load) for each in ast.walk(value)
    )


def _is_unit(node: ast.BinOp) -> bool:
    """Say whether seconds become milliseconds or the like: only a factor that is left out is a mistake to notice."""
    is_factor = isinstance(node.right, ast.Constant) and node.right.value in (1000, 1_000_000)
    return is_factor and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv)


def _is_text(node: ast.BinOp) -> bool:
    """Say whether text is put together, or types are: there is no other operator for that."""
    sides = [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return any(isinstance(each.value, str | bytes) or each.value is None for each in sides)


# -- Lua --------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<comment>--\[\[.*?\]\]|--[^\n]*)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\[\[.*?\]\])
    |(?P<number>\b\d+(?:\.\d+)?\b)
    |(?P<word>[A-Za-z_][A-Za-z_0-9.]*)
    |(?P<operator>==|~=|<=|>=|\.\.|[<>+*/%-])""",
    re.VERBOSE | re.DOTALL,
)
_LUA = {
    "==": "~=",
    "~=": "==",
    "<=": "<",
    ">=": ">",
    "<": "<=",
    ">": ">=",
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "and": "or",
    "or": "and",
    "true": "false",
    "false": "true",
    "not": "",
    "math.min": "math.max",
    "math.max": "math.min",
}
#: How long, how many: as for modules of Python.
_CONSTANT = re.compile(r"^local [A-Z_, ]+ = [-\d., *]+?(?: --.*)?$")
#: A command on a line of its own whose reply is not used.
_COMMAND = re.compile(r"^[ \t]*(redis\.p?call\([^\n]*\))$", re.MULTILINE)


def _of_lua(path: str, text: str) -> Iterator[Mutant]:
    for token in _TOKEN.finditer(text):
        word, line = token[0], text.count("\n", 0, token.start()) + 1
        if token["number"] and "." not in word:
            after = (
                "1"
                if word in ("1000", "1000000") and text[: token.start()].endswith(("* ", "/ "))
                else str(int(word) + 1)
            )
        elif (token["word"] or token["operator"]) and word in _LUA and not _is_sign(text, token):
            after = _LUA[word]
        else:
            continue
        inside = text[slice(*_line_of(text, token.start()))]
        if _CONSTANT.match(inside):
            continue
        yield Mutant(path, line, token.start(), token.end(), f"{word}  in  {inside}", after)
    for command in _COMMAND.finditer(text):
        if command[1].count("(") == command[1].count(")"):
            line = text.count("\n", 0, command.start(1)) + 1
            yield Mutant(path, line, command.start(1), command.end(1), command[1], "")


def _is_sign(text: str, token: re.Match[str]) -> bool:
    """Say whether a minus belongs to a number: "-1" is not "+1" in Lua."""
    before = text[: token.start()].rstrip()
    is_first = before.endswith(("(", ",", "=", "{", "<", ">", "return", "or", "and"))
    return token[0] == "-" and is_first and text[token.end()].isdigit()


def _line_of(text: str, position: int) -> tuple[int, int]:
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    while text[begin] in " \t":
        begin += 1
    return begin, end if end >= 0 else len(text)
