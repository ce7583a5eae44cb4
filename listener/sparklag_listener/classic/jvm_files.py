"""Small text files, read as Spark itself reads them: in any store, with its credentials."""

from __future__ import annotations

from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from sparklag_listener.classic.progress_text import text_in
from sparklag_listener.classic.spark_session import brief
from sparklag_offsets.errors import CheckpointAway
from sparklag_schemas.redaction import redact_location

_NOT_THERE: Final = "java.io.FileNotFoundException"


class JvmFiles:
    """The files of one folder, through Hadoop's FileSystem."""

    def __init__(self, spark: Any, folder: str) -> None:
        """`spark` is a classic session. Nothing is read yet. Raises Py4JError."""
        self.shown = redact_location(folder)
        self._folder = folder
        # Kept: each step of a class's name costs a command.
        self._path = spark._jvm.org.apache.hadoop.fs.Path
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._system = self._path(folder).getFileSystem(configuration)
        self._writer = spark._jvm.java.io.StringWriter
        self._copy = spark._jvm.org.apache.commons.io.IOUtils.copy

    def read(self, name: str) -> bytes | None:
        """`offsets/5`. None: there is no such file. 8 Py4J commands for a short one. Raises
        CheckpointAway."""
        try:
            stream = self._system.open(self._path(f"{self._folder}/{name}"))
            try:
                # Java's text would come over at once, and a long one slowly.
                writer = self._writer()
                self._copy(stream, writer, "UTF-8")
                return text_in(writer.getBuffer()).encode()
            finally:
                stream.close()
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() == _NOT_THERE:
                return None
            raise CheckpointAway(f"{self.shown}: {name}: {brief(error)}") from error
        except (Py4JError, OSError) as error:
            raise CheckpointAway(f"{self.shown}: {name}: {brief(error)}") from error
