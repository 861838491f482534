# SPDX-License-Identifier: Apache-2.0
"""Writer that runs as a child of this process."""

import os
from pathlib import Path
from typing import Unpack, cast

from updraft.spark.local_service import LocalService, SettingValue, showing_options
from updraft.spark.options import WriterOptions


class LocalWriter(LocalService):
    """Running writer, started by `local_writer`."""

    _option_names = WriterOptions.__optional_keys__

    def spark_conf(self) -> dict[str, str]:
        """Return the confs for a Spark session here that writes `updraft-parquet` and `updraft-orc` through the writer.

        Raises:
            ValueError: Updraft has no jar for the PySpark that is installed here.
            ModuleNotFoundError: The distribution `updraft-spark` is not installed.
        """
        return {**super().spark_conf(), "spark.updraft.write.endpoint": self.endpoint}


@showing_options(WriterOptions)
def local_writer(*roots: str | os.PathLike[str], **settings: Unpack[WriterOptions]) -> LocalWriter:
    """Start a writer for this user's sessions on this machine.

    Args:
        roots: Directories, or URLs of buckets, that the writer may write below; at least one.
        settings: Other options of `updraft-writer serve`, with underscores: `quota_bytes=2**30`.

    Raises:
        ValueError: No root is given.
        LocalServiceError: The writer did not start; the message says why.
    """
    if not roots:
        raise ValueError("give at least one directory that the writer may write below: local_writer('/data/tables')")
    arguments = [f"--root={_absolute(os.fspath(root))}" for root in roots]
    return LocalWriter("writer", "updraft-writer", arguments, cast("dict[str, SettingValue]", settings))


def _absolute(root: str) -> str:
    return root if "://" in root else str(Path(root).absolute())
