// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import java.net.{InetAddress, ServerSocket}
import java.nio.file.Files

import org.apache.spark.sql.internal.SQLConf
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.client.Endpoint
import io.updraft.spark.config.{UdfSettings, UpdraftConf}
import io.updraft.spark.reasons.FallbackReason

class PoolProbeSuite extends AnyFunSuite {

  private def settings(port: Int, fallback: String): UdfSettings = {
    val conf = new SQLConf
    conf.setConfString(UpdraftConf.endpoint.key, s"grpc://127.0.0.1:$port")
    conf.setConfString(UpdraftConf.connectTimeout.key, "500ms")
    conf.setConfString(UpdraftConf.fallback.key, fallback)
    UpdraftConf.settings(conf).get
  }

  /** Run `body` with a port where the kernel accepts connections but no process reads. */
  private def withSilence(body: ServerSocket => Unit): Unit = {
    val silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress)
    try body(silent)
    finally silent.close()
  }

  test(
    "an endpoint that accepts connections and says nothing is a reason to run locally, for a moment"
  ) {
    withSilence { silent =>
      val local = settings(silent.getLocalPort, "local")
      val reason = PoolProbe.problem(local, Nil)
      assert(reason.map(_.name).contains(FallbackReason.Unreachable.name))
      assert(
        reason.get.text.endsWith(s"the service at ${local.endpoint} did not answer within 0.5 s")
      )
      silent.close()
      // The port is closed now, so a second attempt would return another reason.
      assert(PoolProbe.problem(local, Nil) == reason)
    }
  }

  test("a query that needs the pool leaves an endpoint that says nothing to its tasks") {
    withSilence { silent =>
      val needed = settings(silent.getLocalPort, "fail")
      assert(PoolProbe.problem(needed, Nil).isEmpty)
      PoolProbe.require(needed, Nil)
    }
  }

  test("a Unix socket that only executors have is left to their tasks") {
    val beside = Endpoint.parse("grpc+unix:///run/updraft/nowhere.sock")
    assert(!PoolProbe.canAsk(beside, driverRunsTasks = false))
    assert(PoolProbe.canAsk(beside, driverRunsTasks = true))
    val socket = Files.createTempFile("updraft", ".sock")
    try
      assert(PoolProbe.canAsk(Endpoint.parse(s"grpc+unix://$socket"), driverRunsTasks = false))
    finally Files.delete(socket)
    assert(PoolProbe.canAsk(Endpoint.parse("grpc://127.0.0.1:8815"), driverRunsTasks = false))
  }
}
