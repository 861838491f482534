// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Add, Expression, Literal}
import org.apache.spark.sql.execution.{SparkPlan, WholeStageCodegenExec}
import org.apache.spark.sql.functions.broadcast
import org.apache.spark.sql.updraft.{InputFiles, LocalSpark, SparkInternals}
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.unsafe.Platform
import org.scalatest.Assertions
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.spark.columns.BatchLimits
import io.updraft.spark.task.input.{
  ArgumentInput,
  FusedFeed,
  RequestBuilder,
  RequestSource,
  RequestSpec
}

/** Comparison of a fused stage's requests with requests copied from the stage's rows. */
class FusedStageSuite extends AnyFunSuite {
  import FusedStageSuite._

  private val types = Seq(
    "id > 20",
    "cast(id % 100 as byte)",
    "cast(id as short)",
    "cast(id as int)",
    "id",
    "cast(id as float)",
    "cast(id as double)",
    "cast(id / 3 as decimal(7, 2))",
    "cast(id / 3 as decimal(18, 6))",
    "cast(id * 12345678901 as decimal(38, 10))",
    "concat('text ', id)",
    "cast(cast(id as string) as binary)",
    "date_from_unix_date(cast(id as int))",
    "timestamp_seconds(id)",
    "timestamp_ntz'2026-01-01 00:00:00' + make_dt_interval(cast(id as int))",
    "make_ym_interval(cast(id as int))",
    "make_dt_interval(cast(id as int))",
    "array(id, null)",
    "map(id, 'a')",
    "named_struct('a', id, 'b', array('c'))"
  )
  private val gaps = types.map(value => s"if(id % 3 = 0, null, $value)")
  private val onlyNulls = Seq("cast(null as int)", "cast(null as string)", "null")

  test("a fused stage fills the same requests as its rows") {
    withSpark { spark =>
      val columns = (types ++ gaps ++ onlyNulls).zipWithIndex.map { case (e, i) => s"$e as c$i" }
      check(spark.range(0, 5000, 1, 2).selectExpr(columns: _*), Seq.empty)
    }
  }

  test("arguments that are expressions are computed within the stage") {
    withSpark { spark =>
      val frame = spark.range(0, 5000, 1, 2).selectExpr("id", "id % 2 as b").where("b = 1")
      check(frame, frame.queryExecution.executedPlan.output.map(Add(_, Literal(1L))))
    }
  }

  test("filters may leave nothing, and end a request where its last row comes late") {
    withSpark { spark =>
      check(spark.range(5000).toDF().where("id < 0"), Seq.empty)
      check(spark.range(5000).toDF().where("id % 1000 = 7"), Seq.empty)
      check(spark.range(5000).toDF().where("id >= 4999"), Seq.empty)
    }
  }

  test("rows of a shuffle are read by the fused stage") {
    withSpark { spark =>
      check(spark.range(3000).repartition(2).selectExpr("id", "id * 2"), Seq.empty)
    }
  }

  test("operators that return several rows at once keep their rows") {
    withSpark { spark =>
      assert(fused(spark.range(9).selectExpr("explode(array(id, id))"), Seq.empty).isEmpty)
      val twice = broadcast(spark.range(18).selectExpr("id % 9 as id"))
      assert(fused(spark.range(9).join(twice, "id"), Seq.empty).isEmpty)
    }
  }

  test("arguments that have no code in a stage keep the rows") {
    withSpark { spark =>
      val frame = spark.range(9).selectExpr("id", "array(id) as a").where("id > 1")
      val selected = frame.selectExpr("transform(a, x -> x + 1) as t").queryExecution.analyzed
      val argument = selected.expressions.head.children.head
      assert(fused(frame, Seq(argument)).isEmpty)
    }
  }

  test("a stage whose code is too long keeps its rows") {
    withSpark { spark =>
      spark.conf.set("spark.sql.codegen.hugeMethodLimit", "10")
      assert(fused(spark.range(9).selectExpr("id + 1"), Seq.empty).isEmpty)
    }
  }

  private def withSpark(body: SparkSession => Unit): Unit =
    LocalSpark(pageBytes = 1 << 20, "spark.sql.adaptive.enabled" -> "false")(body)
}

private object FusedStageSuite extends Assertions {

  private def check(frame: DataFrame, inputs: Seq[Expression]): Unit = {
    val child = plan(frame)
    val spec = specOf(child, inputs)
    val stage = FusedStage.of(child, spec).get
    def collected(source: (InputFiles, Int, Iterator[InternalRow]) => RequestSource) =
      SparkInternals.mapPartitions(stage.input) { (partition, rows) =>
        requests(source(new InputFiles, partition, rows))
      }.collect().toSeq
    val plain = collected { (files, partition, rows) =>
      new ArgumentInput(spec).ofRows(stage.plain.rows(partition, rows), files, partition)
    }
    val fused = collected { (files, partition, rows) =>
      val builder = new RequestBuilder.OfArguments(spec, partition)
      new FusedFeed(partition, stage.fused, rows, builder, files)
    }
    assert(fused == plain)
    assert(plain.map(_._1).sum == frame.count()): Unit
  }

  private def fused(frame: DataFrame, inputs: Seq[Expression]): Option[FusedStage] = {
    val child = plan(frame)
    FusedStage.of(child, specOf(child, inputs))
  }

  private def plan(frame: DataFrame): SparkPlan = frame.queryExecution.executedPlan match {
    case stage: WholeStageCodegenExec => stage
    case other => other.collectFirst { case stage: WholeStageCodegenExec => stage }.getOrElse(other)
  }

  private def specOf(child: SparkPlan, inputs: Seq[Expression]) = {
    val all = child.output.indices
    val arguments = if (inputs.isEmpty) child.output else inputs
    val limits = BatchLimits(1000, 1 << 20, 1 << 20, 1 << 20, 1 << 20)
    RequestSpec(child.output, all, all, arguments, limits, "UTC", largeVarTypes = false)
  }

  /** Return three values for each request: the number of rows, a text for the sent buffers, and a
    * text for the kept columns.
    */
  private def requests(source: RequestSource): Iterator[(Long, String, String)] = {
    TaskContext.get().addTaskCompletionListener[Unit](_ => source.close())
    Iterator.continually(source.next()).takeWhile(_.isDefined).flatten.map { request =>
      val nodes = request.batch.getNodes.asScala.map(n => n.getLength -> n.getNullCount)
      val sent = request.batch.getBuffers.asScala.map { buffer =>
        val bytes = new Array[Byte](buffer.writerIndex().toInt)
        Platform.copyMemory(
          null,
          buffer.memoryAddress(),
          bytes,
          Platform.BYTE_ARRAY_OFFSET.toLong,
          bytes.length.toLong
        )
        java.util.Arrays.hashCode(bytes)
      }
      val kept = request.kept.columns.map(c => s"${c.dataType().typeName}${c.numNulls()}")
      val found = (request.kept.rows.toLong, s"$nodes $sent", kept.mkString(" "))
      request.batch.close()
      request.kept.close()
      found
    }
  }
}
