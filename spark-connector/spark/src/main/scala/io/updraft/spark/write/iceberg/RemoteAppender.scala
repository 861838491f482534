// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.iceberg

import java.util.{List => JavaList}

import scala.jdk.CollectionConverters._
import scala.util.Using

import org.apache.iceberg.hadoop.HadoopOutputFile
import org.apache.iceberg.io.FileAppender
import org.apache.iceberg.parquet.ParquetUtil
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileReader
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.{
  ColumnChunkMetaData,
  ParquetMetadata
}
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.util.HadoopInputFile
import org.apache.iceberg.{FieldMetrics, Metrics, MetricsConfig, Schema}
import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow

import io.updraft.proto.v1.WriteCommand
import io.updraft.spark.write.RowFile

/** Data file that a writer makes. It has no exchange before its first row, because Iceberg opens
  * files that may stay empty, and a file without rows is never created.
  *
  * @param command
  *   common part of the commands of this write's files
  */
final class RemoteAppender(
    target: HadoopOutputFile,
    schema: Schema,
    command: WriteCommand,
    config: MetricsConfig,
    files: RemoteFiles
) extends FileAppender[InternalRow] {
  private[this] val layout = IcebergFiles.columns(schema)
  private[this] val floats = new FloatBounds(schema, layout.arrow)
  private[this] var file: RowFile = _
  private[this] var footer: Option[ParquetMetadata] = None
  private[this] var storedBytes = 0L
  private[this] var isClosed = false

  override def add(row: InternalRow): Unit = {
    if (file == null) file = open()
    file.write(row)
  }

  private def open(): RowFile = RowFile.open(
    target.getPath.toString,
    layout,
    files.settings,
    command,
    files.metrics,
    target.getConf,
    TaskContext.get(),
    floats.add
  )

  /** Return the file's size. Until the file is finished, estimate the size from the rows, and from
    * the compression of this write's finished files.
    */
  override def length(): Long =
    if (isClosed || file == null) storedBytes else (file.rowBytes * files.storedShare).toLong

  /** End the file. A failed task abandons its file, and the abandoned file reports no rows. */
  override def close(): Unit = if (!isClosed) {
    isClosed = true
    if (file != null) {
      file.close()
      file.receipt.foreach { receipt =>
        storedBytes = receipt.getFileBytes
        footer = Some(readFooter())
        files.stored(receipt.getFileBytes, receipt.getRawBytes)
      }
    }
  }

  private def readFooter(): ParquetMetadata =
    Using.resource(
      ParquetFileReader.open(HadoopInputFile.fromPath(target.getPath, target.getConf))
    )(_.getFooter)

  override def metrics(): Metrics = footer match {
    case Some(found) =>
      val counted = floats.metrics
      val ids = counted.map(_.id).toSet
      val unbounded = RemoteAppender.unbounded(found).filterNot(column => ids(column.id))
      IcebergInternals.metrics(schema, config, found, counted ++ unbounded)
    case None => new Metrics(0L, null, null, null, null)
  }

  override def splitOffsets(): JavaList[java.lang.Long] =
    footer.map(ParquetUtil.getSplitOffsets(_)).orNull
}

private object RemoteAppender {

  /** Return counts without bounds for the columns that lack bounds in some row group because of a
    * long value. The bounds of the other row groups may exclude that value. Columns inside lists
    * and maps never have bounds.
    */
  private def unbounded(footer: ParquetMetadata): Seq[FieldMetrics[_]] = {
    val schema = footer.getFileMetaData.getSchema
    val chunks = footer.getBlocks.asScala.toSeq.flatMap(_.getColumns.asScala)
    chunks.groupBy(_.getPath).toSeq.collect {
      case (path, ofColumn)
          if schema.getMaxRepetitionLevel(path.toArray: _*) == 0 &&
            ofColumn.exists(lacksBounds) && ofColumn.forall(_.getStatistics.isNumNullsSet) =>
        new FieldMetrics[Any](
          ofColumn.head.getPrimitiveType.getId.intValue,
          ofColumn.map(_.getValueCount).sum,
          ofColumn.map(_.getStatistics.getNumNulls).sum
        )
    }
  }

  private def lacksBounds(chunk: ColumnChunkMetaData): Boolean =
    !chunk.getStatistics.hasNonNullValue && chunk.getValueCount > chunk.getStatistics.getNumNulls
}
