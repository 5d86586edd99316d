"""Writes the texts of a Parquet file's column to standard output, row by row; parquet_rows.cc starts it.

arguments: FILE COLUMN FIRST_ROW
output: 8 bytes, about how many the column has; then of each row 4 bytes, its text's length (little-endian, all ones:
there is none), and the text. Ends with 2 and a sentence for the user, if something is wrong.
"""

import sys

sys.path[:] = [folder for folder in sys.path if folder]  # not from the folder that it is started in

ROWS_AT_ONCE = 256
READ_AT_ONCE = 1 << 20  # bytes of a column
PYARROW_NEEDED = 14
NAMES_SHOWN = 8
EXIT_USER_MISTAKE = 2
NO_TEXT = b"\xff\xff\xff\xff"


def fail(sentence):
    print(sentence, file=sys.stderr)
    raise SystemExit(EXIT_USER_MISTAKE)


def import_pyarrow():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        fail(f"found no pyarrow in {sys.executable}, which reads Parquet; run {sys.executable} -m pip install pyarrow, "
             "or name another Python by --python")
    if int(pyarrow.__version__.split(".")[0]) < PYARROW_NEEDED:
        fail(f"found pyarrow {pyarrow.__version__} in {sys.executable}, expected {PYARROW_NEEDED} or newer to read Parquet; "
             f"run {sys.executable} -m pip install --upgrade pyarrow, or name another Python by --python")
    return pyarrow


def check_column(pyarrow, path, schema, column):
    names = schema.names
    if column not in names:
        shown = ", ".join(names[:NAMES_SHOWN]) or "nothing"
        fail(f'{path}: found no column "{column}" among {shown}; name the column of the text by --text-column')
    kind = schema.field(column).type
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    tests = ("is_string", "is_large_string", "is_string_view", "is_binary", "is_large_binary")
    if not any(getattr(pyarrow.types, test, lambda _: False)(kind) for test in tests):
        fail(f'{path}: found {kind} in the column "{column}", expected text; name another column by --text-column')


def column_bytes(metadata, column):
    total = 0
    for group in range(metadata.num_row_groups):
        chunks = metadata.row_group(group)
        total += sum(chunks.column(i).total_uncompressed_size for i in range(chunks.num_columns)
                     if chunks.column(i).path_in_schema == column)
    return total


def groups_from(metadata, first_row):
    """The row groups from the one that has the row on, and how many rows of them come before it."""
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if first_row < rows:
            return list(range(group, metadata.num_row_groups)), first_row
        first_row -= rows
    return [], 0


def write_rows(pyarrow, array, out):
    if pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    parts = []
    for text in array.cast(pyarrow.large_binary()).to_pylist():
        parts += [NO_TEXT] if text is None else [len(text).to_bytes(4, "little"), text]
    out.write(b"".join(parts))


def main():
    path, column, first_row = sys.argv[1], sys.argv[2], int(sys.argv[3])
    pyarrow = import_pyarrow()
    out = sys.stdout.buffer
    try:
        with pyarrow.parquet.ParquetFile(path, memory_map=True, buffer_size=READ_AT_ONCE,
                                         page_checksum_verification=True) as file:
            check_column(pyarrow, path, file.schema_arrow, column)
            out.write(column_bytes(file.metadata, column).to_bytes(8, "little"))
            groups, skipped = groups_from(file.metadata, first_row)
            for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=[column], use_threads=False):
                left = min(skipped, batch.num_rows)
                skipped -= left
                write_rows(pyarrow, batch.column(0).slice(left), out)
        out.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        what = " ".join(str(error).split())[:200].rstrip(". ")
        fail(f"{path}: {what}: the file is damaged or was cut short; get it anew")


main()
