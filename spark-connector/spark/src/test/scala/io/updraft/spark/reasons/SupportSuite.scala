// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.reasons

import org.apache.spark.SparkConf
import org.apache.spark.sql.catalyst.expressions.{
  Alias,
  Ascending,
  AttributeReference,
  PythonUDF,
  SortOrder
}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.types._
import org.apache.spark.sql.updraft.SparkInternals.EvalType
import org.apache.spark.sql.updraft.{CalledFunction, LocalSpark, PythonFunctions, WorkerModules}
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.spark.plan.RegisteredPlans

class SupportSuite extends AnyFunSuite {
  private val id = AttributeReference("id", LongType)()

  private def udf(variables: (String, String)*): PythonUDF =
    PythonFunctions.udf("f", LongType, Seq(id), EvalType.Pickled, variables.toMap)

  private def pickled(function: PythonUDF, columns: AttributeReference*): LogicalPlan =
    BatchEvalPython(
      Seq(function),
      Seq(AttributeReference("r", function.dataType)()),
      LocalRelation(id +: columns)
    )

  test("a plain function over plain columns runs on the pool") {
    assert(Support.fallbackReason(pickled(udf())).isEmpty)
  }

  test("a barrier stage stays with Spark") {
    val rows = udf().copy(dataType = new StructType().add("id", LongType))
    val plan = MapInArrow(rows, Seq(id), LocalRelation(id), true, None)
    assert(Support.fallbackReason(plan).contains(FallbackReason.Barrier))
    assert(Support.fallbackReason(plan.copy(isBarrier = false)).isEmpty)
  }

  test("a session with its own hash seed stays with Spark") {
    def seeded(seed: String) = pickled(udf("PYTHONHASHSEED" -> seed))
    assert(Support.fallbackReason(seeded("random")).exists(_.name == "hash-seed"))
    assert(Support.fallbackReason(seeded("0")).isEmpty)
  }

  test("an application with a worker or a daemon of its own stays with Spark") {
    for (setting <- Seq("spark.python.daemon.module", "spark.python.worker.module")) {
      val replaced = WorkerModules.replaced(new SparkConf(false).set(setting, "own.module"))
      assert(replaced.contains(s"$setting is own.module"))
    }
    val named = new SparkConf(false).set("spark.python.daemon.module", "pyspark.daemon")
    assert(WorkerModules.replaced(named).isEmpty)
    val setting = "spark.python.daemon.module"
    LocalSpark(pageBytes = 1L << 20, setting -> "own.module") { _ =>
      val reason = FallbackReason.WorkerModule.about(s"$setting is own.module")
      assert(Support.fallbackReason(pickled(udf())).contains(reason))
    }
    assert(Support.fallbackReason(pickled(udf())).isEmpty)
  }

  test("a type that Arrow cannot carry unchanged is named") {
    val interval = AttributeReference("i", CalendarIntervalType)()
    assert(Support.fallbackReason(pickled(udf(), interval)).exists(_.text.contains("INTERVAL")))
  }

  test("what a kind's row says keeps its functions with Spark") {
    FunctionKinds.all.foreach { kind =>
      val function = PythonFunctions.udf("f", LongType, Seq(id), kind.evalType)
      assert(
        FunctionKinds.fallbackReason(Seq(function), isWindow = false) == kind.fallbackReason,
        kind
      )
    }
  }

  test("a kind that no row is about stays with Spark and is named by its number") {
    val function = PythonFunctions.udf("f", LongType, Seq(id), 999)
    val reason = FunctionKinds.fallbackReason(Seq(function), isWindow = false)
    assert(reason.exists(found => found.name == "unknown-kind" && found.text.contains("999")))
  }

  test("an aggregate in a window has a row of its own") {
    val kinds = FunctionKinds.all.map(kind => kind.evalType -> kind).toMap
    Seq(202 -> 203, 252 -> 253).foreach { case (aggregate, window) =>
      val function = PythonFunctions.udf("f", LongType, Seq(id), aggregate)
      val reason = FunctionKinds.fallbackReason(Seq(function), isWindow = true)
      assert(reason == kinds(window).fallbackReason)
    }
  }

  test("plans without Python are none of our business") {
    assert(!Support.holdsPython(Project(Seq(id), LocalRelation(id))))
  }

  test("commands and unknown nodes that hold a function are left alone") {
    val relation = LocalRelation(id)
    val update = UpdateTable(relation, Seq(Assignment(id, udf())), None)
    assert(update.expressions.exists(_.exists(_.isInstanceOf[PythonUDF])))
    assert(!Support.holdsPython(update))
    assert(!Support.holdsPython(Sort(Seq(SortOrder(udf(), Ascending)), global = true, relation)))
  }

  test("a command that holds a registered function is left alone") {
    val called = CalledFunction("grpc://pool", "f", "", None)
    val function = CalledFunction.scalar(called, LongType, Seq(id), deterministic = true)
    val relation = LocalRelation(id)
    assert(RegisteredPlans.calls(Project(Seq(Alias(function, "x")()), relation)))
    assert(!RegisteredPlans.calls(UpdateTable(relation, Seq(Assignment(id, function)), None)))
  }

  test("a batch query's stateful functions are Python's") {
    val function = PythonFunctions.udf("f", LongType, Seq(id), 208)
    val plan = Project(Seq(Alias(function, "x")()), LocalRelation(id))
    assert(Support.holdsPython(plan))
  }
}
