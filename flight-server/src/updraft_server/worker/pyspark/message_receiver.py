# SPDX-License-Identifier: Apache-2.0
"""Call of PySpark's worker since 4.3: `invoke_udf`, whose receiver passes init message and data separately."""

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
        """Do nothing: the exchange has its own finish, which was checked when the input ended."""


# Without this, the periodic stack dumps that a session asks for appear in a process's first exchange only.
_invoke = with_faulthandler(pyspark.worker.invoke_udf)


def invoke(init_message: bytes, stream: Any) -> None:
    """Run PySpark's worker over a session stream; it raises SystemExit after it has reported an exception."""
    _invoke(_Receiver(init_message, stream), stream)
