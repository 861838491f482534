// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta

import java.math.BigInteger

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.aggregate.{
  AggregateExpression,
  Count,
  DeclarativeAggregate,
  Max,
  Min,
  Sum
}
import org.apache.spark.sql.catalyst.expressions.codegen.GenerateMutableProjection
import org.apache.spark.sql.catalyst.expressions.{
  Attribute,
  AttributeReference,
  BindReferences,
  CaseWhen,
  Expression,
  GenericInternalRow,
  GetStructField,
  IsNull,
  JoinedRow,
  Literal,
  MutableProjection,
  SpecificInternalRow,
  UnsafeProjection
}
import org.apache.spark.sql.delta.stats.{DeltaFileStatistics, DeltaJobStatisticsTracker}
import org.apache.spark.sql.execution.datasources.{WriteTaskStats, WriteTaskStatsTracker}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

import io.updraft.proto.v1.{
  Bound,
  ColumnStatistics,
  ParquetOptions,
  Rebase,
  Receipt,
  TimestampType => StoredTimestamps
}
import io.updraft.spark.write.{TaskFile, TaskFiles}

/** Statistics of new data files for Delta's log. The statistics of a file that the writer made come
  * from the file's receipt. Only values that receipts lack, such as bounds of floating-point
  * numbers, are computed from the rows. Delta's own tracker keeps the statistics of all other
  * files.
  *
  * @param written
  *   called on the driver when all files are written
  */
final class ReceiptStatistics(
    conf: Configuration,
    stock: DeltaJobStatisticsTracker,
    @transient written: Runnable
) extends StatisticsTracker(conf, stock) {

  override def processStats(stats: Seq[WriteTaskStats], jobCommitTime: Long): Unit = {
    super.processStats(stats, jobCommitTime)
    written.run()
  }

  override def newTaskInstance(): WriteTaskStatsTracker =
    new TaskStatistics(() => super.newTaskInstance(), dataCols, evaluated)
}

/** Statistics of the files that one task writes.
  *
  * @param newStock
  *   function that creates Delta's own tracker, for files that Spark makes. Creating a tracker
  *   takes milliseconds, because the tracker generates code
  * @param columns
  *   columns of the rows
  * @param statistics
  *   Delta's expression for the statistics of a file, as JSON; it contains aggregates of `columns`
  */
private final class TaskStatistics(
    newStock: () => WriteTaskStatsTracker,
    columns: Seq[Attribute],
    statistics: Expression
) extends WriteTaskStatsTracker {
  private[this] var stock: Option[WriteTaskStatsTracker] = None
  private[this] val open = mutable.HashMap.empty[String, FileStatistics]
  private[this] val complete = Map.newBuilder[String, String]
  // All files of a task have the same options.
  private[this] var sources: StatisticsSources = _
  private[this] var lastPath: String = _
  private[this] var last: Option[FileStatistics] = None

  /** Do nothing, like Delta's own tracker: files know their partitions. */
  override def newPartition(values: InternalRow): Unit = ()

  override def newFile(path: String): Unit =
    TaskFiles.of(TaskContext.get()).find(path) match {
      case Some(file) =>
        if (sources == null)
          sources = new StatisticsSources(columns, statistics, file.command.getParquet)
        open(path) = new FileStatistics(file, sources.newBuffer())
      case None =>
        if (stock.isEmpty) stock = Some(newStock())
        stock.foreach(_.newFile(path))
    }

  override def newRow(path: String, row: InternalRow): Unit = {
    if (path ne lastPath) {
      lastPath = path
      last = open.get(path)
    }
    last match {
      case Some(file) => sources.update(file.buffer, row)
      case None => stock.foreach(_.newRow(path, row))
    }
  }

  override def closeFile(path: String): Unit = open.remove(path) match {
    case Some(file) => add(path, file)
    case None => stock.foreach(_.closeFile(path))
  }

  override def getFinalStats(taskCommitTime: Long): WriteTaskStats = {
    open.foreach { case (path, file) => add(path, file) }
    val ofStock = stock.map { tracker =>
      tracker.getFinalStats(taskCommitTime).asInstanceOf[DeltaFileStatistics].stats
    }
    DeltaFileStatistics(ofStock.getOrElse(Map.empty) ++ complete.result())
  }

  private def add(path: String, file: FileStatistics): Unit = {
    // A failed task closes its files without receipts.
    file.file.receipt.foreach { receipt =>
      complete += new Path(path).getName -> sources.json(file.buffer, receipt)
    }
    // Spark may reuse this path object for the next file.
    lastPath = null
  }
}

/** Open file of a task, with the aggregation of its rows. */
private final class FileStatistics(val file: TaskFile, val buffer: InternalRow)

/** Sources of the values in Delta's statistics of a file: its receipt, or an aggregation of its
  * rows.
  */
private final class StatisticsSources(
    columns: Seq[Attribute],
    statistics: Expression,
    options: ParquetOptions
) {
  private[this] val fromReceipt = mutable.ArrayBuffer.empty[(AttributeReference, ReceiptValue)]
  private[this] val fromRows = mutable.ArrayBuffer.empty[DeclarativeAggregate]

  // A dot in a column's name could make the column's path equal to the path of another column's
  // field.
  private[this] val hasPlainPaths = !columns.exists(column => hasDots(column.name, column.dataType))

  private[this] val result = statistics.transform {
    case aggregate: AggregateExpression =>
      (ofReceipt(aggregate), aggregate.aggregateFunction) match {
        case (Some(value), function) =>
          val attribute = AttributeReference("value", function.dataType)()
          fromReceipt += attribute -> value
          attribute
        case (None, function: DeclarativeAggregate) =>
          fromRows += function
          function.evaluateExpression
        case (None, _) => aggregate
      }
  }

  private def ofReceipt(aggregate: AggregateExpression): Option[ReceiptValue] =
    if (hasPlainPaths) ReceiptValue.of(aggregate, options) else None

  private def hasDots(name: String, dataType: DataType): Boolean =
    name.contains('.') || (dataType match {
      case struct: StructType => struct.exists(field => hasDots(field.name, field.dataType))
      case _ => false
    })

  private[this] val bufferColumns = fromRows.toSeq.flatMap(_.aggBufferAttributes)
  private[this] val initialize =
    GenerateMutableProjection.generate(fromRows.toSeq.flatMap(_.initialValues), Nil, false)
  private[this] val updating: MutableProjection = GenerateMutableProjection.generate(
    BindReferences.bindReferences(
      fromRows.toSeq.flatMap(_.updateExpressions),
      bufferColumns ++ columns
    ),
    Nil,
    true
  )
  private[this] val toJson =
    UnsafeProjection.create(Seq(result), bufferColumns ++ fromReceipt.map(_._1))
  private[this] val joined = new JoinedRow

  /** Return the state of the aggregation before the first row of a file. */
  def newBuffer(): InternalRow = {
    val buffer = new SpecificInternalRow(bufferColumns.map(_.dataType))
    initialize.target(buffer)(InternalRow.empty)
    buffer
  }

  def update(buffer: InternalRow, row: InternalRow): Unit =
    if (fromRows.nonEmpty) updating.target(buffer)(joined(buffer, row))

  /** Return a complete file's statistics. */
  def json(buffer: InternalRow, receipt: Receipt): String = {
    val ofColumns = receipt.getColumnsList.asScala.map(column => column.getPath -> column).toMap
    val values = fromReceipt.map { case (_, value) => value.in(receipt, ofColumns) }
    toJson(joined(buffer, new GenericInternalRow(values.toArray[Any]))).getString(0)
  }
}

/** Value that a file's receipt contains. */
private sealed trait ReceiptValue {

  /** Return the value in Catalyst's form; null if the file has no such value. */
  def in(receipt: Receipt, columns: Map[String, ColumnStatistics]): Any
}

private object ReceiptValue {

  /** Return the value that equals an aggregate over the rows of a file; None if receipts have no
    * such value.
    */
  def of(aggregate: AggregateExpression, options: ParquetOptions): Option[ReceiptValue] =
    if (aggregate.isDistinct || aggregate.filter.nonEmpty || lacksColumns(options)) None
    else
      aggregate.aggregateFunction match {
        case Count(Seq(Literal(value, _))) if value != null => Some(RowCount)
        case Min(Leaf(path, dataType)) if hasBounds(dataType, options) =>
          Some(Minimum(path, dataType))
        case Max(Leaf(path, dataType)) if hasBounds(dataType, options) =>
          Some(Maximum(path, dataType))
        case Sum(NullAsOne(Leaf(path, dataType)), _) if hasNullCount(dataType, options) =>
          Some(NullCount(path))
        case _ => None
      }

  /** Return whether the bounds in receipts are the bounds of Spark's values. For floating-point
    * numbers they are not: receipts may change the sign of zeros and leave out NaN.
    */
  private def hasBounds(dataType: DataType, options: ParquetOptions): Boolean = dataType match {
    case ByteType | ShortType | IntegerType | LongType | _: DecimalType => true
    case string: StringType => string == StringType
    case DateType | TimestampNTZType => options.getRebase != Rebase.REBASE_LEGACY
    case TimestampType =>
      options.getTimestamps == StoredTimestamps.TIMESTAMP_TYPE_MICROS &&
      options.getRebase != Rebase.REBASE_LEGACY
    case _ => false
  }

  /** Return a bound in Catalyst's form. */
  private[delta] def value(bound: Bound, dataType: DataType): Any = dataType match {
    case ByteType => bound.getInteger.toByte
    case ShortType => bound.getInteger.toShort
    case IntegerType | DateType => bound.getInteger.toInt
    case LongType | TimestampType | TimestampNTZType => bound.getInteger
    case decimal: DecimalType =>
      val unscaled = new BigInteger(bound.getDecimal.toByteArray)
      Decimal(BigDecimal(unscaled, decimal.scale), decimal.precision, decimal.scale)
    case _ => UTF8String.fromBytes(bound.getBinary.toByteArray)
  }

  /** Return whether receipts count a column's nulls. Leaves of lists and maps repeat, so their
    * number of nulls differs from the column's. Files have no statistics of INT96 columns.
    */
  private def hasNullCount(dataType: DataType, options: ParquetOptions): Boolean = dataType match {
    case _: ArrayType | _: MapType | _: StructType => false
    case TimestampType => options.getTimestamps == StoredTimestamps.TIMESTAMP_TYPE_MICROS
    case _ => true
  }

  /** Return whether the session has turned off the statistics in files. */
  private def lacksColumns(options: ParquetOptions): Boolean =
    options.hasStatistics && !options.getStatistics

  /** Extractor for a column or a field of structs: its dotted path in the file, and its type. */
  private object Leaf {
    def unapply(expression: Expression): Option[(String, DataType)] =
      path(expression).map(_ -> expression.dataType)

    private def path(expression: Expression): Option[String] = expression match {
      case column: Attribute => Some(column.name)
      case field: GetStructField => path(field.child).map(_ + "." + field.extractFieldName)
      case _ => None
    }
  }

  /** Extractor for the expression that Delta sums up to count nulls: 1 for a null, otherwise 0. */
  private object NullAsOne {
    def unapply(expression: Expression): Option[Expression] = expression match {
      case CaseWhen(Seq((IsNull(column), Literal(1, _))), Some(Literal(0, _))) => Some(column)
      case _ => None
    }
  }
}

private case object RowCount extends ReceiptValue {
  override def in(receipt: Receipt, columns: Map[String, ColumnStatistics]): Any = receipt.getRows
}

private final case class NullCount(path: String) extends ReceiptValue {
  override def in(receipt: Receipt, columns: Map[String, ColumnStatistics]): Any =
    columns.get(path) match {
      case Some(column) => column.getNulls
      case None => null
    }
}

private final case class Minimum(path: String, dataType: DataType) extends ReceiptValue {
  override def in(receipt: Receipt, columns: Map[String, ColumnStatistics]): Any =
    columns.get(path) match {
      case Some(column) if column.hasMinimum => ReceiptValue.value(column.getMinimum, dataType)
      case _ => null
    }
}

private final case class Maximum(path: String, dataType: DataType) extends ReceiptValue {
  override def in(receipt: Receipt, columns: Map[String, ColumnStatistics]): Any =
    columns.get(path) match {
      case Some(column) if column.hasMaximum => ReceiptValue.value(column.getMaximum, dataType)
      case _ => null
    }
}
