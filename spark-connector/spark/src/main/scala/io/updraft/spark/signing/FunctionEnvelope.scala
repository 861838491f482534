// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.signing

import java.util.TimeZone

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.updraft.FunctionArtifacts
import org.apache.spark.{SPARK_VERSION, SparkEnv}

import io.updraft.proto.v1
import io.updraft.proto.v1.SessionFunction

/** What a pool's front reads of a session function, but for the digests of artifacts.
  *
  * @param environment
  *   what the session tells PySpark's worker
  */
final case class FunctionEnvelope(
    pythonVersion: String,
    evalType: Int,
    environment: Map[String, String],
    artifacts: FunctionArtifacts
) {

  /** As the command has it, with the time zone of this process. */
  def function(listed: Seq[v1.Artifact]): SessionFunction =
    SessionFunction
      .newBuilder()
      .setPythonVersion(pythonVersion)
      .setSparkVersion(SPARK_VERSION)
      .setEvalType(evalType)
      .putAllEnvironment((FunctionEnvelope.hostEnvironment ++ environment).asJava)
      .addAllArtifacts(listed.asJava)
      .addAllPythonIncludes(artifacts.includes.asJava)
      .putAllUserEnvironment(artifacts.variables.asJava)
      .build()
}

object FunctionEnvelope {

  /** What Spark's own workers find of the process that starts them. */
  private def hostEnvironment: Map[String, String] = Map(
    "TZ" -> TimeZone.getDefault.getID,
    "OMP_NUM_THREADS" -> SparkEnv.get.conf.get("spark.task.cpus", "1")
  )
}
