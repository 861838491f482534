// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import java.lang.reflect.Modifier

import scala.jdk.CollectionConverters._

import com.tngtech.archunit.core.importer.ClassFileImporter
import org.apache.hadoop.fs.Path
import org.apache.spark.SparkEnv
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning
import org.apache.spark.sql.connector.catalog.functions.BoundFunction
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{LongType, StructField, StructType}
import org.apache.spark.sql.updraft.SparkInternals.EvalType
import org.apache.spark.sql.updraft.{CalledFunction, DeclaredArgument, LocalSpark, PythonFunctions}
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.spark.UpdraftExtensions
import io.updraft.spark.columns.BinaryBuilder
import io.updraft.spark.config.{UdfSettings, UpdraftConf}
import io.updraft.spark.functions.{FunctionBinding, PoolAggregate, PoolScalar}
import io.updraft.spark.task.groups.RowShape
import io.updraft.spark.write.delta.FilesByDeltaExec
import io.updraft.spark.write.{Replacement, UpdraftParquetFormat, WriterCheckExec, WriterInputExec}

/** Check that the nodes of a plan, the nodes' expressions and the functions in the expressions are
  * serializable, because Spark may send each of them to a task.
  */
class SerializationSuite extends AnyFunSuite {
  private val id = AttributeReference("id", LongType, nullable = false)()
  private val result = AttributeReference("r", LongType)()
  private val rows = new StructType().add("id", LongType)
  private val called = CalledFunction("grpc://pool:8815", "f", "1", Some(LongType))
  private val binding =
    FunctionBinding(called, Seq(LongType), Seq(LongType), LongType, deterministic = true)

  private val settings: UdfSettings = {
    val conf = new SQLConf
    conf.setConfString(UpdraftConf.endpoint.key, called.endpoint)
    UpdraftConf.settings(conf).get
  }

  private val registered = CalledFunction.scalar(called, LongType, Seq(id), deterministic = true)
  private val registeredAggregate =
    CalledFunction.aggregate(called, LongType, Seq(id), deterministic = true)
  private val shipped = PythonFunctions.udf("f", LongType, Seq(id), EvalType.ScalarPandas)
  private val ofRows = shipped.copy(dataType = rows)
  private val shippedAggregate = registeredAggregate.copy(func = shipped.func)
  private val aggregate = shippedAggregate.toAggregateExpression()
  private val table =
    PythonFunctions.tableFunction(LongType).copy(
      children = Seq(id),
      evalType = EvalType.PickledTable
    )

  private def child = UnsortedRows(Seq(id))

  private val windows = Seq(Alias(
    WindowExpression(
      aggregate,
      WindowSpecDefinition(
        Seq(id),
        Nil,
        SpecifiedWindowFrame(RowFrame, UnboundedPreceding, UnboundedFollowing)
      )
    ),
    "w"
  )())

  private def nodes: Seq[SparkPlan] = Seq(
    FlightAccumulateExec(Seq(id), None, registeredAggregate, result, child, settings),
    FlightAggregateExec(Seq(id), Seq(aggregate), Seq(aggregate.resultAttribute), child, settings),
    FlightCallExec(registered, result, child, settings),
    FlightCallTableExec(table.copy(func = called), Seq(id), Seq(result), child, settings),
    FlightCogroupedMapExec(Seq(id), Seq(id), ofRows, Seq(result), child, child, settings),
    FlightConstantExec(registered, result, child, settings),
    FlightEvalPythonExec(Seq(shipped), Seq(result), child, EvalType.ScalarPandas, settings),
    FlightEvalPythonUDTFExec(table, Seq(id), Seq(result), child, settings),
    FlightGroupedMapExec(Seq(id), ofRows, Seq(result), child, RowShape.Columns, settings),
    FlightMapInBatchExec(ofRows, Seq(result), child, settings),
    FlightMergeExec(Seq(id), registeredAggregate, result, result, child, settings),
    FlightWindowExec(windows, Seq(id), Nil, child, settings),
    FilesByDeltaExec("a reason", child),
    StockPythonExec("a reason", child),
    PlacedRows(Seq(id), UnknownPartitioning(1), Nil, null),
    RowSinkExec(Seq(id), Seq(classOf[BinaryBuilder].getName), child),
    child,
    WriterCheckExec(
      Replacement(new UpdraftParquetFormat, new Path("/table"), rows, Map.empty),
      child
    ),
    WriterInputExec(Seq(id), Seq(id), child, takesBatches = false)
  )

  private val functions =
    Seq[BoundFunction](new PoolScalar(binding), new PoolAggregate(binding))

  private val expressions = Seq[Expression](
    DeclaredArgument(id, StructField("value", LongType), "f"),
    ApplyFunctionExpression(new PoolScalar(binding), Seq(id)),
    V2Aggregator(new PoolAggregate(binding), Seq(id)),
    registered,
    registeredAggregate
  )

  /** Return the names of the connector's classes that occur in plans. */
  private def kinds: Seq[String] =
    new ClassFileImporter()
      .importUrl(classOf[UpdraftExtensions].getProtectionDomain.getCodeSource.getLocation)
      .asScala
      .toSeq
      .filter { found =>
        Seq(classOf[SparkPlan], classOf[Expression], classOf[BoundFunction])
          .exists(found.isAssignableTo(_))
      }
      .map(found => Class.forName(found.getName, false, getClass.getClassLoader))
      .filter(found => !Modifier.isAbstract(found.getModifiers))
      .map(_.getName)

  test("every node, expression and function of a plan has an example here") {
    val examples = Seq[Seq[Any]](nodes, expressions, functions).flatten
    assert(kinds.toSet -- examples.map(_.getClass.getName) == Set.empty)
  }

  test("every node, with the work of its tasks, every expression and every function is serialized") {
    // Spark's extra debug info needs packages that the JVM of tests does not open.
    LocalSpark(pageBytes = 1L << 20, "spark.serializer.extraDebugInfo" -> "false") { _ =>
      val serializer = SparkEnv.get.closureSerializer.newInstance()
      val work = nodes.collect { case node: FlightPythonExec => node.taskRunner }
      val parts = Seq[Seq[Any]](expressions, functions, nodes, work).flatten
      parts.foreach { part =>
        val copy = serializer.deserialize[Any](serializer.serialize(part))
        assert(copy.getClass == part.getClass)
      }
    }
  }
}
