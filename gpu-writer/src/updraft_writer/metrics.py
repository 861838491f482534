# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of the writer, all prefixed updraft_writer_."""

from updraft.service.metrics import Metrics


class WriterMetrics(Metrics):
    """Metrics of one writer."""

    def __init__(self) -> None:
        super().__init__("updraft_writer")
        self.files = self.counter(
            "updraft_writer_files_total",
            "Files that ended, by format, encoder and outcome.",
            ["format", "encoder", "outcome"],
        )
        self.encoder_reasons = self.counter(
            "updraft_writer_encoder_reasons_total",
            "Finished files, by the reason for their encoder: gpu, or what kept them on the CPU.",
            ["reason"],
        )
        self.file_seconds = self.seconds(
            "updraft_writer_file_seconds", "Duration of an exchange, from its first message to its status.", ["format"]
        )
        self.admission_seconds = self.seconds(
            "updraft_writer_admission_wait_seconds", "Time that a batch waited for the quota."
        )
        self.receiver_restarts = self.counter(
            "updraft_writer_receiver_restarts_total", "Receivers that have replaced others."
        )
        self.raw_bytes = self.counter("updraft_writer_raw_bytes_total", "Bytes of batches received.")
        self.stored_bytes = self.counter("updraft_writer_stored_bytes_total", "Encoded bytes stored.")
        self.rows = self.counter("updraft_writer_rows_total", "Rows of finished files.")
        self.encode_seconds = self.counter("updraft_writer_encode_seconds_total", "Time that encoder threads took.")
        self.store_seconds = self.counter(
            "updraft_writer_store_seconds_total", "Time that storing pieces of files took."
        )
