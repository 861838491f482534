# SPDX-License-Identifier: Apache-2.0
"""Call of PySpark's worker in 4.3 and later: `invoke_udf` asks a receiver for the init message, then for the data."""

from typing import Any

import pyspark.worker
from pyspark.messages import SparkMessageReceiver, ZeroCopyByteStream
from pyspark.util import with_faulthandler


class _Receiver(SparkMessageReceiver):  # type: ignore[misc]
    def __init__(self, init_message: bytes, stream: Any) -> None:
        super().__init__()
        self._init_message = init_message
        self._stream = stream

    def _do_get_init_message(self) -> Any:
        message = ZeroCopyByteStream(memoryview(self._init_message))
        message.finish()
        return message

    def _do_get_data_stream(self) -> Any:
        return self._stream

    def _do_get_finish_signal_from_stream(self) -> None:
        """Do nothing: the exchange has its own Finish message, and has checked it at the end of the input."""


# Without this wrapper, only a process's first exchange would write the periodic stack dumps that a session asks for.
_invoke = with_faulthandler(pyspark.worker.invoke_udf)


def invoke(init_message: bytes, stream: Any) -> None:
    """Run PySpark's worker over a session stream; raises SystemExit after the worker has reported an exception."""
    _invoke(_Receiver(init_message, stream), stream)
