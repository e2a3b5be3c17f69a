"""Tables as they are read, a batch at a time: Parquet, or text with the columns' types guessed."""

import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from weft.errors import InputError, StorageError, reason_of
from weft.graph.addresses import name_at
from weft.graph.column_names import one_column
from weft.graph.columns import integers_of
from weft.graph.quotes import QuotedText
from weft.graph.remote_folder import RemoteFile
from weft.threads import cached_property

_ROWS = 1 << 16  # of Parquet: a row may have thousands of numbers
_CSV_BLOCK = 1 << 24  # bytes
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_CONVERSION = "conversion error"  # what Arrow calls it where a later block is not of the first one's types
_STRADDLING = "straddling"  # what it calls a value that is longer than a block
_LIST_HEAD = 1 << 20  # bytes of an edge list, within which its comments end
_COMMENTS = ("#", "%")
_LINE_END = re.compile(r"\r\n|\r|\n")  # as Arrow has it: a form feed is none
_BEFORE_LINES = re.compile(rb"(?:\xef\xbb\xbf)?(?:[#%][^\r\n]*(?:[\r\n]|\Z)|[ \t]*[\r\n])*")  # comments, blank lines


@dataclass(frozen=True)
class _Layout:
    """How the lines of a text are to be read."""

    delimiter: str
    before: int = 0  # bytes before the first line that counts
    names: tuple[str, ...] = ()  # of columns, where the first line that counts does not say them
    unnamed: bool = False  # does none say them?

    @classmethod
    def of_list(cls, head: bytes, ends: Collection[str]) -> "_Layout":
        """That of an edge list which begins like this, as SNAP and others publish them: there may be comments before
        its lines, spaces between its columns, and no header. `ends`: columns that are asked for."""
        begins = _BEFORE_LINES.match(head)
        before = begins.end() if begins else 0
        comments = [line for line in _lines_of(head[:before]) if line.startswith(_COMMENTS)]
        first = _lines_of(head[before:])[0]
        if not comments and not {*first.split("\t")}.isdisjoint(ends):
            return cls("\t", before)
        delimiter = next((mark for mark in "\t, " if mark in first), "\t")
        fields, told = first.split(delimiter), _names_in(comments[-1], delimiter) if comments else []
        numbers = len(fields) > 1 and all(field.removeprefix("-").isdecimal() for field in fields[:2])
        named = not {*told}.isdisjoint(ends) or (delimiter != " " and (len(told) > 2 or not numbers))
        if len(told) == len(fields) > 1 and named:
            return cls(delimiter, before, tuple(told))  # the last comment says what the columns are
        names = ("src", "dst", *map(str, range(3, len(fields) + 1))) if numbers else ()
        return cls(delimiter, before, names, numbers)


def _lines_of(head: bytes) -> list[str]:
    """What begins a text, by lines; the last one may be cut."""
    return _LINE_END.split(head.decode("utf-8-sig", errors="replace"))


def _names_in(comment: str, delimiter: str) -> list[str]:
    """The names of columns that a comment would say, without its mark."""
    told = comment.lstrip("".join(_COMMENTS)).strip(" ")
    return [name.strip() for name in told.split(None if delimiter == " " else delimiter)]


class OtherTypesError(InputError):
    """A column of a text holds other things than its first block."""


class Table:
    """A table on disk or at an address, read a batch at a time; one at an address is read there each time."""

    def __init__(self, path: Path | str, ends: Collection[str] = ()) -> None:
        """`ends`: of a table of edges, the columns of sources and destinations that are asked for."""
        self.path, self._name, self._ends = path, name_at(path), ends
        self._closed = False  # are all quotes known to be?
        if isinstance(path, Path) and not path.exists():
            raise StorageError(f"there is no table at {path}: check the path")
        if isinstance(path, Path) and path.is_dir():
            raise InputError(f"{path} is a folder: name one file (folders of Parquet files are read with --on ray)")
        suffixes = [suffix for suffix in map(str.lower, self._name.suffixes) if suffix not in _COMPRESSED]
        self._kind = suffixes[-1].lstrip(".") if suffixes else ""
        if self._kind not in ("parquet", "pq", "csv", "tsv", "txt"):
            raise InputError(
                f"{path} is no table that can be read: use .parquet, .csv, .tsv or .txt (.gz, .bz2, .zst too)"
            )

    @property
    def is_csv(self) -> bool:
        """Is it text, which has no types?"""
        return self._kind not in ("parquet", "pq")

    @property
    def unnamed(self) -> bool:
        """Is it an edge list that does not say what its columns are?"""
        return self.is_csv and self._layout.unnamed

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns; of a CSV that takes reading its first block."""
        with self._errors():
            if not self.is_csv:
                with pa.parquet.ParquetFile(self._opened()) as file:
                    return list(file.schema_arrow.names)
            with self._open_csv(None) as reader:
                return list(reader.schema.names)

    def read(
        self, columns: Sequence[str], as_text: Sequence[str] = (), numbers: Sequence[str] = ()
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of the columns, each with its first row; those of `as_text` come as strings, whatever they look like.

        Of text, a column is of the type that its first block has; `numbers`: those that may be whole at first and later not.
        """
        row = 0
        for batch in self._batches(columns, as_text, numbers):
            yield row, batch
            row += len(batch)

    def _batches(
        self, columns: Sequence[str], as_text: Sequence[str], numbers: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        with self._errors():
            if not self.is_csv:
                with pa.parquet.ParquetFile(self._opened()) as file:
                    yield from file.iter_batches(_ROWS, columns=list(columns))
            else:
                try:
                    yield from self._read_text(columns, as_text, numbers)
                except pa.ArrowInvalid as error:
                    if _STRADDLING in str(error):
                        self._check_quotes()
                    raise
                self._check_quotes()

    def _read_text(
        self, columns: Sequence[str], as_text: Sequence[str], numbers: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        done, whole = 0, list[str]()
        try:
            with self._open_csv(columns, as_text) as reader:
                whole = [at.name for at in reader.schema if at.name in numbers and pa.types.is_integer(at.type)]
                for batch in reader:
                    yield batch
                    done += len(batch)
            return
        except pa.ArrowInvalid as error:
            if not whole or _CONVERSION not in str(error):
                raise
        with self._open_csv(columns, as_text, whole) as reader:
            for batch in reader:
                if done < len(batch):
                    yield batch.slice(done)
                done = max(0, done - len(batch))

    def read_ids(
        self,
        textual: Mapping[str, bool],
        others: Sequence[str] = (),
        as_text: Sequence[str] = (),
        numbers: Sequence[str] = (),
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of columns of ids and others. A CSV's ids are strings, or else the integers that they spell."""
        for row, batch in self.read([*textual, *others], [*textual, *as_text], numbers):
            for name in textual if self.is_csv else ():
                if not textual[name]:
                    integers = integers_of(batch.column(name), row)
                    batch = batch.set_column(batch.schema.get_field_index(name), name, integers)
            yield row, batch

    def one(self, wanted: str) -> str:
        """The one column that a name or pattern means."""
        return one_column(wanted, self.columns, str(self.path))

    def others(self, used: Collection[str | None]) -> tuple[str, ...]:
        """The columns that are not used, with the table's name."""
        return tuple(f"{self._name.name}: {name}" for name in self.columns if name not in used)

    def _check_quotes(self) -> None:
        """Refuse a text with an open quote; once. This thread reads it anew: Python can't end while Arrow's call it."""
        if self._closed:
            return
        with self._streamed() as stream:
            text = QuotedText(stream, self._layout.delimiter)
            text.pass_by(self._layout.before)
            while text.read(_CSV_BLOCK):
                pass
        if line := text.unclosed():
            raise InputError(
                f"{self.path}, line {line}: a quote is not closed, so that the lines after it are one value: close it, or "
                f"double the quotes within values, or save the table as Parquet"
            )
        self._closed = True

    def _open_csv(
        self, columns: Sequence[str] | None, as_text: Sequence[str] = (), numbers: Sequence[str] = ()
    ) -> pa.csv.CSVStreamingReader:
        layout = self._layout
        return pa.csv.open_csv(
            self._lines(),
            pa.csv.ReadOptions(block_size=_CSV_BLOCK, column_names=layout.names),
            pa.csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
            pa.csv.ConvertOptions(
                include_columns=columns,
                column_types={**dict.fromkeys(as_text, pa.string()), **dict.fromkeys(numbers, pa.float64())},
            ),
        )

    @cached_property
    def _layout(self) -> _Layout:
        if self._kind != "txt" or not self._ends:
            return _Layout("," if self._kind == "csv" else "\t")
        with self._streamed() as stream:
            return _Layout.of_list(stream.read(_LIST_HEAD), self._ends)

    def _lines(self) -> pa.NativeFile:
        """The text from its first line that counts on."""
        stream = self._streamed()
        stream.read(self._layout.before)
        return stream

    def _opened(self) -> Path | RemoteFile:
        """What Arrow reads from anywhere in it."""
        return self.path if isinstance(self.path, Path) else RemoteFile(self.path)

    def _streamed(self) -> pa.NativeFile:
        """What Arrow reads from beginning to end."""
        here = isinstance(self.path, Path)
        stream = self.path if here else io.BufferedReader(RemoteFile(str(self.path)), _CSV_BLOCK)
        return pa.input_stream(stream, _COMPRESSED.get(self._name.suffix.lower()))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What Arrow refuses, in one sentence."""
        try:
            yield
        except (pa.ArrowException, UnicodeError, EOFError) as error:
            raise self._unread(error) from None
        except OSError as error:  # of which Arrow has no number, if it could read a file and makes nothing of it
            if error.errno is None:
                raise self._unread(error) from None
            raise StorageError(f"reading {self.path} failed: {reason_of(error)}") from None

    def _unread(self, error: Exception) -> InputError:
        if _CONVERSION in str(error) and "UTF8" not in str(error):
            return OtherTypesError(
                f"{self.path} can't be read as a table ({reason_of(error)}): the column holds other values at first; write "
                f"them alike, or save the table as Parquet; ids are read as they are by --ids names"
            )
        return InputError(
            f"{self.path} can't be read as a table ({reason_of(error)}): repair the file, or export it again"
        )
