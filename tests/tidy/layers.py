"""Who may know whom: the table of layers (cmake/layers.txt), the libraries that each CMakeLists.txt declares, and
the parts of a folder.

A part is NAME.h with NAME.cc (and NAME_impl.h, where a part hides what it is made of). Parts know each other by
their includes, and not in a circle.
"""

import os
import re

TABLE = "cmake/layers.txt"
# Folders of the repository with product code must have a row; these are above all of it.
OUTSIDE = ("tests/", "bench/", "cmake/", "scripts/")

LIBRARY = re.compile(r"\bswarmline_(?:library|proto)\s*\(([^)]*)\)")
KEYWORDS = ("NAME", "SOURCES", "HEADERS", "DEPS", "EXTERNAL", "CUDA_SOURCES", "PROTOS", "OWN_FLAGS")
PART = re.compile(r"(_impl)?\.(h|cc|cu|cuh)$")


class Library:
    def __init__(self, folder, words):
        lists = {keyword: [] for keyword in KEYWORDS}
        keyword = "NAME"
        for word in words:
            if word in lists:
                keyword = word
            else:
                lists[keyword].append(word)
        self.name = lists["NAME"][0]
        self.folder = folder
        files = lists["SOURCES"] + lists["HEADERS"] + lists["CUDA_SOURCES"]
        # Generated headers are named after their .proto file.
        files += [name.replace(".proto", ".pb.h") for name in lists["PROTOS"]]
        self.files = {os.path.normpath(os.path.join(folder, name)) for name in files}
        self.deps = set(lists["DEPS"])


def libraries_of(folder, text):
    """The libraries that a folder's CMakeLists.txt declares."""
    text = re.sub(r"#[^\n]*", "", text)
    return [Library(folder, match.group(1).split()) for match in LIBRARY.finditer(text)]


def part_of(path):
    """engine/net/frame.cc and engine/net/frame.h are both of the part engine/net/frame."""
    return PART.sub("", path)


class House:
    def __init__(self, table, cmake_lists):
        """table: the text of cmake/layers.txt. cmake_lists: folder -> text of its CMakeLists.txt."""
        self.layers = []  # names, the lowest first
        self.rows = {}    # folder -> place of its layer
        self.in_parts = set()  # folders whose parts make no circle
        for line in table.split("\n"):
            words = line.split("#")[0].split()
            if words[:1] == ["layer"]:
                self.layers.append(words[1])
            elif words:
                self.rows[words[0]] = len(self.layers) - 1
                if words[1:] == ["parts"]:
                    self.in_parts.add(words[0])
        self.libraries = [library for folder, text in cmake_lists.items()
                          for library in libraries_of(folder, text)]

    @staticmethod
    def read(root):
        with open(os.path.join(root, TABLE), encoding="utf-8") as source:
            table = source.read()
        cmake_lists = {}
        for row in House(table, {}).rows:
            for path, _, names in os.walk(os.path.join(root, row)):
                if "CMakeLists.txt" in names:
                    with open(os.path.join(path, "CMakeLists.txt"), encoding="utf-8") as source:
                        cmake_lists[os.path.relpath(path, root)] = source.read()
        return House(table, cmake_lists)

    def row_of(self, path):
        """The folder of the table that holds path; None where rules end."""
        return max((f for f in self.rows if path.startswith(f + "/")), key=len, default=None)

    def libraries_with(self, path):
        """The library that a file is of; several, where its folder has several and no list names the file."""
        named = [library for library in self.libraries if path in library.files]
        if not named:  # a private header is of the library of its part
            named = [library for library in self.libraries
                     if part_of(path) in {part_of(name) for name in library.files}]
        if not named:
            around = [library for library in self.libraries if path.startswith(library.folder + "/")]
            depth = max((len(library.folder) for library in around), default=0)
            named = [library for library in around if len(library.folder) == depth]
        return named

    def include_problem(self, path, included):
        """One sentence when path must not include this header, else None."""
        row, other = self.row_of(path), self.row_of(included)
        if row is None:
            return None
        if other is None:
            if included.startswith(("tests/", "bench/")):
                return f'includes "{included}": product code includes no tests'
            return None
        own_layer, layer = self.rows[row], self.rows[other]
        if layer > own_layer:
            return (f'includes "{included}" of the layer {self.layers[layer]} ({other}) from the layer '
                    f"{self.layers[own_layer]} ({row}): only lower layers may be included")
        if layer < own_layer:
            return None
        own, others = self.libraries_with(path), self.libraries_with(included)
        if not own or not others or set(own) & set(others):
            return None
        if any(theirs.name in ours.deps for ours in own for theirs in others):
            return None
        return (f'includes "{included}" of the library {others[0].name}, which the DEPS of {own[0].name} do not '
                "name: declare it, or do without")

    def table_problems(self, root, paths):
        """Sentences about rows without a folder, and files of the product without a row."""
        for row in self.rows:
            if not os.path.isdir(os.path.join(root, row)):
                yield f"{row} has a row and is no folder"
        for folder in sorted({os.path.dirname(path) for path in paths}):
            if not (folder + "/").startswith(OUTSIDE) and self.row_of(folder + "/") is None:
                yield f"{folder} has no row: which layer is it in?"


def circle_of(graph):
    """The nodes of one circle in {node: {node, ...}}, in its order; empty when there is none."""
    done, way = set(), []

    def visit(node):
        if node in way:
            return way[way.index(node):]
        if node in done:
            return []
        way.append(node)
        for following in sorted(graph.get(node, ())):
            circle = visit(following)
            if circle:
                return circle
        way.pop()
        done.add(node)
        return []

    for node in sorted(graph):
        circle = visit(node)
        if circle:
            return circle
    return []


def circles(house, includes):
    """includes: path -> the paths it includes. For each folder of parts that know each other in a circle: the
    parts of one circle, in its order."""
    graphs = {}
    for path, included in includes.items():
        row = house.row_of(path)
        if row in house.in_parts:
            graph = graphs.setdefault(row, {}).setdefault(part_of(path), set())
            graph.update(part_of(other) for other in included
                         if house.row_of(other) == row and part_of(other) != part_of(path))
    return [circle for _, graph in sorted(graphs.items()) if (circle := circle_of(graph))]
