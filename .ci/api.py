#!/usr/bin/env python3
"""The public surface of the crates, a line an item, against the golden lists in tests/api.

`.ci/api.py CRATE.json...` prints the items of rustdoc's JSON; `--check FOLDER` compares them with FOLDER/CRATE.txt,
`--write FOLDER` writes these. A change of the surface is a change of a golden file, which a review sees.
"""

import json
import sys
from pathlib import Path

HIDDEN = "doc(hidden)"


def main(arguments):
    mode, folder = None, None
    if arguments and arguments[0] in ("--check", "--write"):
        mode, folder, arguments = arguments[0], Path(arguments[1]), arguments[2:]
    failed = False
    for name in arguments:
        lines = sorted(set(Crate(json.loads(Path(name).read_text())).lines()))
        golden = folder and folder / (Path(name).stem + ".txt")
        if mode is None:
            print("\n".join(lines))
        elif mode == "--write":
            golden.write_text("\n".join(lines) + "\n")
        else:
            known = golden.read_text().splitlines() if golden.exists() else []
            for line in sorted(set(known) - set(lines)):
                print(f"{golden}: gone: {line}")
            for line in sorted(set(lines) - set(known)):
                print(f"{golden}: new: {line}")
            failed |= known != lines
            print(f"{golden}: {len(lines)} public items")
    if failed:
        print("the public surface has changed: if that is meant, run `.ci/run surface-write`, and say why in the "
              "commit")
    return failed


class Crate:
    """The items that rustdoc has found."""

    def __init__(self, document):
        self.index, self.root = document["index"], document["root"]

    def item(self, id):
        return self.index.get(str(id))

    def lines(self):
        yield from self.module(self.item(self.root), [])

    def module(self, item, path):
        path = path + [item["name"]]
        for id in item["inner"]["module"]["items"]:
            child = self.item(id)
            if child is not None and self.is_public(child):
                yield from self.one(child, path)

    def is_public(self, item):
        hidden = any("hidden" in str(attribute) and "doc" in str(attribute) for attribute in item["attrs"])
        return not hidden and item["visibility"] in ("public", "default")

    def one(self, item, path):
        (kind, inner), = item["inner"].items()
        name = "::".join([*path, item["name"] or ""])
        if kind == "module":
            yield f"mod {name}"
            yield from self.module(item, path)
        elif kind == "use":
            target = self.item(inner["id"]) if inner["id"] is not None else None
            if target is None or target["crate_id"] != 0:
                yield f"use {'::'.join([*path, inner['name']])} = {inner['source']}"
            elif inner["is_glob"]:
                for id in target["inner"].get("module", {}).get("items", []):
                    if self.is_public(self.item(id)):
                        yield from self.one(self.item(id), path)
            else:
                yield from self.one({**target, "name": inner["name"]}, path)
        elif kind in ("struct", "enum", "union", "trait"):
            open_end = "non_exhaustive " if any("non_exhaustive" in str(it) for it in item["attrs"]) else ""
            yield f"{open_end}{kind} {name}{self.generics(inner['generics'])}"
            yield from self.members(kind, inner, [*path, item["name"]])
        elif kind == "function":
            yield self.function(name, item, inner)
        elif kind in ("constant", "static"):
            yield f"{kind} {name}: {self.type(inner.get('type') or inner)}"
        elif kind == "type_alias":
            yield f"type {name} = {self.type(inner['type'])}"
        elif kind == "macro":
            yield f"macro {name}!"

    def members(self, kind, inner, path):
        name = "::".join(path)
        if kind == "struct":
            shape = inner["kind"]
            fields = shape.get("plain", {}).get("fields", []) if isinstance(shape, dict) else []
            fields = fields or (shape.get("tuple", []) if isinstance(shape, dict) else [])
            for id in fields:
                field = self.item(id) if id is not None else None
                if field is not None and self.is_public(field):
                    yield f"field {name}::{field['name']}: {self.type(field['inner']['struct_field'])}"
        for id in inner.get("variants", []):
            yield f"variant {name}::{self.item(id)['name']}"
        if kind == "trait":
            for id in inner["items"]:
                yield from self.associated(self.item(id), name)
        for id in inner.get("impls", []):
            block = self.item(id)
            if block is None:
                continue
            of = block["inner"]["impl"]
            if of["trait"] is None:
                for id in of["items"]:
                    if self.is_public(self.item(id)) and self.item(id)["visibility"] == "public":
                        yield from self.associated(self.item(id), name)
            elif not of["is_synthetic"] and of["blanket_impl"] is None:
                yield f"impl {of['trait']['path']}{self.arguments(of['trait']['args'])} for {name}"

    def associated(self, item, name):
        (kind, inner), = item["inner"].items()
        if kind == "function":
            yield self.function(f"{name}::{item['name']}", item, inner)
        elif kind == "assoc_const":
            yield f"constant {name}::{item['name']}: {self.type(inner['type'])}"
        elif kind == "assoc_type":
            yield f"type {name}::{item['name']}"

    def function(self, name, item, inner):
        header, signature = inner["header"], inner["sig"]
        words = "".join(word for word, on in (("const ", header["is_const"]), ("unsafe ", header["is_unsafe"])) if on)
        inputs = ", ".join(f"{name}: {self.type(type)}" for name, type in signature["inputs"])
        output = "" if signature["output"] is None else f" -> {self.type(signature['output'])}"
        return f"{words}fn {name}{self.generics(inner['generics'])}({inputs}){output}"

    def generics(self, generics):
        names = [it["name"] for it in generics["params"] if not it["kind"].get("type", {}).get("is_synthetic", False)]
        return f"<{', '.join(names)}>" if names else ""

    def arguments(self, arguments):
        if not arguments:
            return ""
        if "angle_bracketed" in arguments:
            inner = arguments["angle_bracketed"]
            args = [self.argument(it) for it in inner["args"]]
            args += [f"{it['name']} = {self.bound(it)}" for it in inner["constraints"]]
            return f"<{', '.join(args)}>" if args else ""
        inner = arguments.get("parenthesized", {"inputs": [], "output": None})
        output = "" if inner["output"] is None else f" -> {self.type(inner['output'])}"
        return f"({', '.join(map(self.type, inner['inputs']))}){output}"

    def argument(self, argument):
        (kind, inner), = argument.items() if isinstance(argument, dict) else ((argument, None),)
        return {"type": self.type, "lifetime": str}.get(kind, lambda it: str(it and it.get("expr")))(inner)

    def bound(self, constraint):
        binding = constraint["binding"]
        return self.type(binding["equality"]["type"]) if "type" in binding.get("equality", {}) else "..."

    def type(self, type):
        (kind, inner), = type.items()
        match kind:
            case "resolved_path":
                return inner["path"] + self.arguments(inner["args"])
            case "generic" | "primitive":
                return inner
            case "borrowed_ref":
                lifetime = f"{inner['lifetime']} " if inner["lifetime"] else ""
                return f"&{lifetime}{'mut ' if inner['is_mutable'] else ''}{self.type(inner['type'])}"
            case "tuple":
                return f"({', '.join(map(self.type, inner))})"
            case "slice":
                return f"[{self.type(inner)}]"
            case "array":
                return f"[{self.type(inner['type'])}; {inner['len']}]"
            case "impl_trait":
                return "impl " + self.bounds(inner)
            case "dyn_trait":
                traits = [it["trait"]["path"] + self.arguments(it["trait"]["args"]) for it in inner["traits"]]
                return "dyn " + " + ".join(traits)
            case "qualified_path":
                return f"{self.type(inner['self_type'])}::{inner['name']}"
            case "raw_pointer":
                return f"*{'mut' if inner['is_mutable'] else 'const'} {self.type(inner['type'])}"
            case "function_pointer":
                inputs = ", ".join(self.type(type) for _, type in inner["sig"]["inputs"])
                output = inner["sig"]["output"]
                return f"fn({inputs})" + ("" if output is None else f" -> {self.type(output)}")
        return kind

    def bounds(self, bounds):
        traits = [it["trait_bound"]["trait"] for it in bounds if "trait_bound" in it]
        return " + ".join(it["path"] + self.arguments(it["args"]) for it in traits)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
