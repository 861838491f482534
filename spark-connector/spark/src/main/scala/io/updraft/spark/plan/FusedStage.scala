// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.codegen.{
  ByteCodeStats,
  CodeAndComment,
  CodeGenerator,
  CodegenContext,
  CodegenFallback,
  ExprCode,
  FalseLiteral,
  GeneratedClass
}
import org.apache.spark.sql.catalyst.expressions.{
  Alias,
  Attribute,
  AttributeSet,
  Expression,
  LeafExpression
}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.{
  BufferedRowIterator,
  CodegenSupport,
  ColumnarToRowExec,
  FilterExec,
  InputAdapter,
  ProjectExec,
  RangeExec,
  SparkPlan,
  UnaryExecNode,
  WholeStageCodegenExec
}

import io.updraft.spark.task.input.{FusedCode, RequestSpec, RowSink}

/** Stage of generated code below an operator. The code writes its values straight into the columns
  * of requests, instead of building rows that the operator would have to copy.
  *
  * @param input
  *   input of the stage
  * @param fused
  *   code that writes columns
  * @param plain
  *   Spark's own code of the stage, for barrier tasks, which need rows
  */
private[plan] final class FusedStage(
    @transient val input: RDD[InternalRow],
    val fused: GeneratedCode,
    val plain: GeneratedCode
) extends Serializable

private[plan] object FusedStage extends Logging {

  /** Fuse the stage that is an operator's child with requests of these columns. Return None if the
    * child is not such a stage or the code cannot be compiled.
    */
  def of(child: SparkPlan, spec: RequestSpec): Option[FusedStage] = child match {
    case stage @ WholeStageCodegenExec(last: CodegenSupport)
        if returnsRowsOneByOne(last) && spec.computed.forall(hasCode) =>
      fused(last, spec, stage).map { code =>
        new FusedStage(last.inputRDDs().head, code, generated(stage, stage))
      }
    case _ => None
  }

  /** Return whether each operator of a stage returns at most one row before it checks whether to
    * stop. A join or `explode` could return further rows after the request is full.
    */
  private def returnsRowsOneByOne(plan: SparkPlan): Boolean = plan match {
    case _: RangeExec | _: InputAdapter | _: ColumnarToRowExec => true
    case _: ProjectExec | _: FilterExec => plan.children.forall(returnsRowsOneByOne)
    case _ => false
  }

  /** Return whether a stage can compute an expression. Without generated code, an expression needs
    * a row, which a stage lacks.
    */
  private def hasCode(expression: Expression): Boolean = !expression.exists {
    case _: LeafExpression => false
    case _: CodegenFallback => true
    case _ => false
  }

  private def sink(last: SparkPlan, spec: RequestSpec): RowSinkExec = {
    val columns = spec.columns.map {
      case column: Attribute => column
      case computed => Alias(computed, "computed")()
    }
    val rows = if (spec.computed.isEmpty) last else ProjectExec(columns, last)
    val builders = spec.columnSet(columns.map(_.dataType)).columns.map(_.getClass.getName)
    RowSinkExec(columns.map(_.toAttribute), builders.toSeq, rows)
  }

  private def fused(
      last: SparkPlan,
      spec: RequestSpec,
      stage: WholeStageCodegenExec
  ): Option[GeneratedCode] =
    try {
      val code = generated(WholeStageCodegenExec(sink(last, spec))(stage.codegenStageId), stage)
      val (_, statistics) = code.compile()
      if (statistics.maxMethodCodeSize <= stage.conf.hugeMethodLimit) Some(code) else None
    } catch {
      case NonFatal(e) if stage.conf.codegenFallback =>
        logWarning("rows are copied because the code that writes columns does not compile", e)
        None
    }

  private def generated(code: WholeStageCodegenExec, stage: WholeStageCodegenExec) = {
    val (context, source) = code.doCodeGen()
    new GeneratedCode(source, context.references.toArray, stage.longMetric("pipelineTime"))
  }
}

/** Generated code of a stage.
  *
  * @param references
  *   objects that the code uses; [[RowSinkExec.Placeholder]] stands for the task's sink
  * @param duration
  *   Spark's metric of the stage's time
  */
private[plan] final class GeneratedCode(
    source: CodeAndComment,
    references: Array[Any],
    duration: SQLMetric
) extends FusedCode {

  def compile(): (GeneratedClass, ByteCodeStats) = CodeGenerator.compile(source)

  override def start(
      partition: Int,
      input: Iterator[InternalRow],
      sink: RowSink
  ): Iterator[InternalRow] = start(
    partition,
    input,
    references.map {
      case RowSinkExec.Placeholder => sink
      case other => other
    }
  )

  /** Return the rows of code without a sink. */
  def rows(partition: Int, input: Iterator[InternalRow]): Iterator[InternalRow] =
    start(partition, input, references)

  private def start(partition: Int, input: Iterator[InternalRow], references: Array[Any]) = {
    val rows = compile()._1.generate(references).asInstanceOf[BufferedRowIterator]
    rows.init(partition, Array(input))
    new Iterator[InternalRow] {
      override def hasNext: Boolean = {
        val isThere = rows.hasNext
        if (!isThere) duration += rows.durationMs()
        isThere
      }
      override def next(): InternalRow = rows.next()
    }
  }
}

/** Last operator of a fused stage. It writes the values of each row into the columns of a
  * [[RowSink]].
  *
  * @param columns
  *   columns of the child to write, in the order of the sink
  * @param builders
  *   class of each column's builder
  */
private[plan] case class RowSinkExec(
    columns: Seq[Attribute],
    builders: Seq[String],
    child: SparkPlan
) extends UnaryExecNode
    with CodegenSupport {
  private[this] var sink = ""
  private[this] var targets = Seq.empty[String]

  override def output: Seq[Attribute] = child.output

  override def usedInputs: AttributeSet = AttributeSet(columns)

  override def inputRDDs(): Seq[RDD[InternalRow]] = generated.inputRDDs()

  private def generated = child.asInstanceOf[CodegenSupport]

  override protected def doProduce(context: CodegenContext): String = {
    val sinkClass = classOf[RowSink].getName
    val reference = context.addReferenceObj("sink", RowSinkExec.Placeholder, sinkClass)
    sink = field(context, sinkClass, "sink", reference)
    targets = builders.zipWithIndex.map { case (builder, i) =>
      field(context, builder, "column", s"($builder) $sink.column($i)")
    }
    generated.produce(context, this)
  }

  /** Add a field to the generated class. If the class used an array instead of fields, each value
    * would cost an extra access.
    */
  private def field(context: CodegenContext, className: String, name: String, value: String) =
    context.addMutableState(className, name, field => s"$field = $value;", forceInline = true)

  override def doConsume(context: CodegenContext, input: Seq[ExprCode], row: ExprCode): String = {
    val values = columns.map(column => input(child.output.indexWhere(_.exprId == column.exprId)))
    val puts = targets.zip(values).map {
      case (target, ExprCode(_, FalseLiteral, value)) => s"$target.put($value);"
      case (target, ExprCode(_, isNull, value)) =>
        s"if ($isNull) { $target.putNull(); } else { $target.put($value); }"
    }
    s"""
       |${evaluateVariables(values)}
       |${puts.mkString("\n")}
       |if ($sink.endRow()) { append($sink.pause()); }
     """.stripMargin
  }

  override protected def doExecute(): RDD[InternalRow] =
    throw new UnsupportedOperationException(s"$nodeName exists only in generated code")

  override protected def withNewChildInternal(newChild: SparkPlan): RowSinkExec =
    copy(child = newChild)
}

private[plan] object RowSinkExec {

  /** Stand-in for the sink in the plan. Each task replaces it with the task's own sink. */
  case object Placeholder
}
