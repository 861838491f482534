// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.signing

import java.util.TimeZone

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.updraft.FunctionArtifacts
import org.apache.spark.{SPARK_VERSION, SparkEnv}

import io.updraft.proto.v1
import io.updraft.proto.v1.SessionFunction

/** Part of a session function that a pool's front reads, except the digests of artifacts.
  *
  * @param environment
  *   environment variables that the session sets for PySpark's worker
  */
final case class FunctionEnvelope(
    pythonVersion: String,
    evalType: Int,
    environment: Map[String, String],
    artifacts: FunctionArtifacts
) {

  /** Return the function's entry in the command, with the time zone of this process. */
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

  /** Return the environment variables that Spark's own workers inherit from the process that starts
    * them.
    */
  private def hostEnvironment: Map[String, String] = Map(
    "TZ" -> TimeZone.getDefault.getID,
    "OMP_NUM_THREADS" -> SparkEnv.get.conf.get("spark.task.cpus", "1")
  )
}
