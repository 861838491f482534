// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import java.nio.file.{Files, Path}

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.AttributeReference
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{LongType, StructType}
import org.apache.spark.sql.updraft.SparkInternals.EvalType
import org.apache.spark.sql.updraft.{ArrowSchemas, LocalSpark, PythonCall, PythonFunctions}
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.client.Exchange
import io.updraft.proto.v1.{ExchangeCommand, Statement}
import io.updraft.spark.config.{UdfSettings, UpdraftConf}
import io.updraft.spark.signing.KeyFiles

class TaskFunctionSuite extends AnyFunSuite {

  private def schema: Schema =
    ArrowSchemas.of(new StructType().add("_0", LongType), "UTC", largeVarTypes = false)

  private def settings(confs: (String, String)*): UdfSettings = {
    val conf = new SQLConf
    conf.setConfString(UpdraftConf.endpoint.key, "grpc://pool:8815")
    conf.setConfString(UpdraftConf.tenant.key, "team")
    confs.foreach { case (key, value) => conf.setConfString(key, value) }
    UpdraftConf.settings(conf).get
  }

  private def newCall: FunctionCall = {
    val argument = AttributeReference("a", LongType)()
    val variables = Map("MODEL" -> "large")
    val udf = PythonFunctions.udf("f", LongType, Seq(argument), EvalType.Pickled, variables)
    FunctionCall(
      PythonCall.of(Seq(udf)),
      "f()",
      EvalType.Pickled,
      Map("a" -> "b"),
      Map("c" -> "d"),
      Map("SPARK_JOB_ARTIFACT_UUID" -> "a session"),
      maxRecordsPerBatch = 0
    )
  }

  /** Return the commands that tasks make from the function that Spark serializes for them. */
  private def commands(
      session: SparkSession,
      settings: UdfSettings,
      call: FunctionCall = newCall
  ): RDD[Array[Byte]] = {
    val function = TaskFunction.of(call, schema, settings)
    session.sparkContext.parallelize(1 to 2, 2).map { _ =>
      function.opening(TaskContext.get()).command.toByteArray
    }
  }

  private def sent(commands: RDD[Array[Byte]]): Seq[ExchangeCommand] =
    commands.collect().toSeq.map(ExchangeCommand.parseFrom)

  private def statement(command: ExchangeCommand): Statement =
    Statement.parseFrom(command.getSignedStatement.getStatement)

  /** Run `body` with a key file and a session of a local Spark that has distributed a file. */
  private def signing(body: (SparkSession, Path) => Unit): Unit =
    KeyFiles.withFile(KeyFiles.known) { key =>
      KeyFiles.withFile("a table") { table =>
        LocalSpark(pageBytes = 1 << 20) { session =>
          session.sparkContext.addFile(table.toString)
          body(session, key)
        }
      }
    }

  test("a statement names what the command brings, its schema and its owner") {
    signing { (session, key) =>
      val signed = sent(commands(session, settings(UpdraftConf.signingKeyFile.key -> key.toString)))
      assert(signed.size == 2)
      signed.foreach { command =>
        assert(KeyFiles.isSignedByKnown(command.getSignedStatement))
        val vouched = statement(command)
        assert(vouched.getFunction == command.getSession)
        assert(command.getSession.getArtifactsList.asScala.map(_.getSizeBytes) == Seq(7L))
        assert(command.getSession.getUserEnvironmentMap.asScala == Map("MODEL" -> "large"))
        val payload = KeyFiles.sha256(command.getPayload.toByteArray)
        assert(vouched.getPayloadSha256.toByteArray.toSeq == payload)
        val header = KeyFiles.sha256(Exchange.schemaHeader(schema))
        assert(vouched.getSchemaSha256.toByteArray.toSeq == header)
        assert(vouched.getOwner.getApplicationId == session.sparkContext.applicationId)
        assert(vouched.getOwner.getSessionId == "a session")
        assert(vouched.getOwner.getTenant == "team")
        val owner = command.getTask.getOwner
        assert(owner.getApplicationId == vouched.getOwner.getApplicationId)
        assert(owner.getSessionId == vouched.getOwner.getSessionId)
      }
    }
  }

  test("a signature holds for the lifetime that is set, of seven days by default") {
    signing { (session, key) =>
      val keyFile = UpdraftConf.signingKeyFile.key -> key.toString
      Seq(
        Seq(keyFile) -> 7L * 24 * 3600 * 1000,
        Seq(keyFile, UpdraftConf.signatureLifetime.key -> "90s") -> 90000L
      ).foreach { case (confs, lifetime) =>
        val before = System.currentTimeMillis()
        val vouched = statement(sent(commands(session, settings(confs: _*))).head)
        assert(vouched.getExpiresAtMilliseconds - vouched.getIssuedAtMilliseconds == lifetime)
        assert(vouched.getIssuedAtMilliseconds >= before)
        assert(vouched.getIssuedAtMilliseconds <= System.currentTimeMillis())
      }
    }
  }

  test("an RDD that runs again is signed again, by the key that is there then") {
    signing { (session, key) =>
      val rdd = commands(session, settings(UpdraftConf.signingKeyFile.key -> key.toString))
      val first = sent(rdd).head
      Files.writeString(key, KeyFiles.generated("Ed25519"))
      val second = sent(rdd).head
      assert(KeyFiles.isSignedByKnown(first.getSignedStatement))
      assert(second.getSignedStatement.getKeySha256 != first.getSignedStatement.getKeySha256)
      val issued = Seq(first, second).map(statement(_).getIssuedAtMilliseconds)
      assert(issued == issued.sorted)
      assert(second.getSession == first.getSession && second.getPayload == first.getPayload)
    }
  }

  test("without a key nothing is signed, and the same function travels") {
    signing { (session, key) =>
      val call = newCall
      val withKey = settings(UpdraftConf.signingKeyFile.key -> key.toString)
      val plain = sent(commands(session, settings(), call)).head
      val signed = sent(commands(session, withKey, call)).head
      assert(!plain.hasSignedStatement)
      assert(plain.getSession == signed.getSession && plain.getPayload == signed.getPayload)
    }
  }

  test("a key that cannot be used fails on the driver, before there are tasks") {
    signing { (session, key) =>
      Files.writeString(key, "no key")
      intercept[IllegalArgumentException](
        commands(session, settings(UpdraftConf.signingKeyFile.key -> key.toString))
      )
    }
  }
}
