// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import java.lang.reflect.{Method, Modifier}
import java.util.jar.JarFile

import scala.jdk.CollectionConverters._
import scala.util.Using

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.execution.command.{DataWritingCommandExec, ExecutedCommandExec}
import org.apache.spark.sql.execution.python._
import org.apache.spark.sql.execution.{LeafExecNode, LocalTableScanExec, SparkPlan}
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.spark.write.WriterCheckExec
import io.updraft.spark.write.delta.FilesByDeltaExec

/** Check that an operator that wraps or replaces one of Spark's operators overrides every method
  * that Spark's operator overrides.
  */
class KeptBehaviourSuite extends AnyFunSuite {

  /** Methods that Spark calls on the operator itself, even if another operator wraps it. */
  private val askedBelow = Set(
    "innerChildren",
    "cleanupResources",
    "metrics",
    "resetMetrics",
    "requiredChildDistribution",
    "requiredChildOrdering",
    "producedAttributes",
    "verboseStringWithOperatorId"
  )

  test("all that Spark's Python operators override is forwarded from above them") {
    val operators = pythonOperators
    assert(operators.contains(classOf[MapInArrowExec]) && operators.size >= 10)
    operators.foreach { operator =>
      assert(missing(operator, classOf[StockPythonExec]) -- askedBelow == Set.empty, operator)
    }
  }

  test("all that Spark's commands override is forwarded from above them") {
    Seq(classOf[ExecutedCommandExec], classOf[DataWritingCommandExec]).foreach { command =>
      Seq(classOf[WriterCheckExec], classOf[FilesByDeltaExec]).foreach { above =>
        assert(missing(command, above) -- askedBelow == Set.empty, command)
      }
    }
  }

  test("all that Spark's Python operators override is overridden by those in their place") {
    // The text for explain differs, and SparkPlan's own supportsRowBased is right for operators
    // that return batches.
    val otherwise = Set("verboseStringWithOperatorId", "supportsRowBased")
    Seq(
      "ArrowEvalPythonExec" -> classOf[FlightEvalPythonExec],
      "BatchEvalPythonExec" -> classOf[FlightEvalPythonExec],
      "ArrowEvalPythonUDTFExec" -> classOf[FlightEvalPythonUDTFExec],
      "BatchEvalPythonUDTFExec" -> classOf[FlightEvalPythonUDTFExec],
      "MapInArrowExec" -> classOf[FlightMapInBatchExec],
      "MapInPandasExec" -> classOf[FlightMapInBatchExec],
      "FlatMapGroupsInArrowExec" -> classOf[FlightGroupedMapExec],
      "FlatMapGroupsInPandasExec" -> classOf[FlightGroupedMapExec],
      "FlatMapCoGroupsInArrowExec" -> classOf[FlightCogroupedMapExec],
      "FlatMapCoGroupsInPandasExec" -> classOf[FlightCogroupedMapExec],
      "ArrowAggregatePythonExec" -> classOf[FlightAggregateExec],
      "ArrowWindowPythonExec" -> classOf[FlightWindowExec]
    ).foreach { case (name, ours) =>
      pythonOperators.filter(_.getSimpleName == name).foreach { stock =>
        assert(missing(stock, ours) -- otherwise == Set.empty, stock)
      }
    }
  }

  test("a method that is forgotten is found") {
    assert(missing(classOf[ExecutedCommandExec], classOf[StockPythonExec]).contains("executeTake"))
  }

  test("an operator of another kind gets no reason above it") {
    val rows = LocalTableScanExec(Nil, Nil, None)
    assert(StockPythonExec.above(rows, "why") eq rows)
  }

  /** Return the methods of plans that `replaced` overrides and `ours` does not. */
  private def missing(replaced: Class[_], ours: Class[_]): Set[String] =
    overridden(replaced) -- overridden(ours)

  private def overridden(operator: Class[_]): Set[String] = {
    val bases = Set[Class[_]](classOf[SparkPlan], classOf[QueryPlan[_]])
    val logging = classOf[Logging].getMethods.map(_.getName).toSet
    val own = operator.getMethods.toSeq.filterNot(method => bases(method.getDeclaringClass))
    bases
      .flatMap(_.getDeclaredMethods.toSeq)
      .filter(isOpen)
      .filter(method => own.exists(isOverride(_, method)))
      .map(_.getName)
      .diff(logging)
  }

  private def isOpen(method: Method): Boolean = {
    val flags = method.getModifiers
    val isFixed = Modifier.isFinal(flags) || Modifier.isPrivate(flags) || Modifier.isStatic(flags)
    !isFixed && !method.getName.contains("$")
  }

  private def isOverride(own: Method, base: Method): Boolean =
    own.getName == base.getName && own.getParameterTypes.sameElements(base.getParameterTypes)

  private lazy val pythonOperators: Seq[Class[_]] = {
    val first = classOf[MapInArrowExec]
    val jar = first.getProtectionDomain.getCodeSource.getLocation.getPath
    val folder = first.getPackageName.replace('.', '/')
    Using.resource(new JarFile(jar)) { file =>
      file.entries.asScala
        .map(_.getName)
        .filter(name => name.startsWith(folder) && name.endsWith("Exec.class"))
        .map(name => Class.forName(name.stripSuffix(".class").replace('/', '.')))
        .filter(isFunctions)
        .toSeq
    }
  }

  /** Return whether a class is a concrete operator with a child. The operator that reads worker
    * logs has no child.
    */
  private def isFunctions(operator: Class[_]): Boolean =
    classOf[SparkPlan].isAssignableFrom(operator) &&
      !Modifier.isAbstract(operator.getModifiers) &&
      !classOf[LeafExecNode].isAssignableFrom(operator)
}
