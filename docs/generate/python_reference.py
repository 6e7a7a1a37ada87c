"""
Prints the reference of the Python SDK as Markdown: the public classes with their attributes, methods and docstrings. It
reads the sources without running them, so nothing has to be installed. The argument is the folder of the package.
"""

import ast
import sys
from pathlib import Path

PACKAGE = Path(sys.argv[1])
#: The reference shows these classes first, in this order, then every other public class. It leaves out the asynchronous
#: classes, because they have the same methods, with `await`.
FIRST = ["Sandbox", "ExecResult", "Job", "OutputChunk", "JobStdin", "Files", "Ports", "TerminalConnection", "Client"]


def read(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


def file_of(module: str, base: Path) -> Path:
    """The file of a module such as `sandbar._sync.files`, or of `_sync.files` in a relative import from `base`."""
    parts = module.removeprefix(f"{PACKAGE.name}.").split(".")
    return base.joinpath(*parts).with_suffix(".py")


def public_classes() -> dict[str, tuple[ast.ClassDef, Path]]:
    """Every class that the package exports, with its file, by the name of the class."""
    found = {}
    for node in read(PACKAGE / "__init__.py").body:
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        file = file_of(node.module, PACKAGE)
        names = {alias.name for alias in node.names}
        for item in read(file).body:
            if isinstance(item, ast.ClassDef) and item.name in names:
                found[item.name] = (item, file)
    return found


def resources(client: tuple[ast.ClassDef, Path]) -> dict[str, tuple[ast.ClassDef, Path]]:
    """The classes behind `client.machines` and so on, which the package does not export by name."""
    found = {}
    used = {node.id for node in ast.walk(client[0]) if isinstance(node, ast.Name)}
    for node in read(client[1]).body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            file = file_of(node.module, PACKAGE)
            for item in read(file).body if file.exists() else []:
                is_used = isinstance(item, ast.ClassDef) and item.name in used & {alias.name for alias in node.names}
                if is_used and "_sync" in file.parts:
                    found[item.name] = (item, file)
    return found


def prose(text: str | None) -> str:
    """Escapes a docstring, because VitePress reads `<` as an element and two braces as an expression."""
    return (text or "").replace("<", "&lt;").replace("{{", "&#123;&#123;")


def signature(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    args = ast.unparse(method.args)
    for own in ("self", "cls"):
        args = args.removeprefix(own).removeprefix(", ")
    returns = f" -> {ast.unparse(method.returns)}" if method.returns else ""
    return f"{method.name}({args}){returns}"


def is_shown(node: ast.stmt) -> bool:
    is_method = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    return is_method and (not node.name.startswith("_") or (node.name == "__init__" and bool(ast.get_docstring(node))))


def attributes(item: ast.ClassDef) -> list[str]:
    """The annotated attributes of a class, each with the docstring below it."""
    lines = []
    for node, following in zip(item.body, [*item.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or ast.unparse(node.target).startswith("_"):
            continue
        is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        text = f": {prose(following.value.value)}" if is_text else ""
        lines.append(f"- `{ast.unparse(node.target)}: {ast.unparse(node.annotation)}`{text}")
    return lines


def describe(item: ast.ClassDef) -> str:
    bases = [ast.unparse(base) for base in item.bases]
    parts = [f"## {item.name}"]
    if bases:
        parts.append(f"Extends {', '.join(f'`{base}`' for base in bases)}.")
    parts.append(prose(ast.get_docstring(item)))
    parts.append("\n".join(attributes(item)))
    for method in filter(is_shown, item.body):
        parts.append(f"### {item.name}.{method.name}\n\n```text\n{signature(method)}\n```")
        parts.append(prose(ast.get_docstring(method)))
    return "\n\n".join(part for part in parts if part)


def main() -> None:
    # _options.py has the types of keyword arguments, such as ExecOptions. They are shown as classes too.
    classes = public_classes()
    shown = {name: found for name, found in classes.items() if not name.startswith("Async")}
    if "Client" in shown:
        shown |= resources(shown["Client"])
    options = PACKAGE / "_options.py"
    shown |= {item.name: (item, options) for item in read(options).body if isinstance(item, ast.ClassDef)}
    errors = [name for name in shown if name.endswith("Error")]
    order = [name for name in FIRST if name in shown]
    order += sorted(name for name in shown if name not in order and name not in errors) + errors
    print("\n\n".join(describe(shown[name][0]) for name in order))


main()
