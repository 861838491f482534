// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.time.Duration

import org.apache.spark.sql.internal.SQLConf
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.client.Peer
import io.updraft.proto.v1.{Delivery, Pace}

class UpdraftConfSuite extends AnyFunSuite {

  private def settings(pairs: (String, String)*): Option[UdfSettings] = {
    val conf = new SQLConf
    pairs.foreach { case (key, value) => conf.setConfString(key, value) }
    UpdraftConf.settings(conf)
  }

  private val endpoint = UpdraftConf.endpoint.key -> "grpc://pool:8815"

  test("without an endpoint there are no settings") {
    assert(settings().isEmpty)
    assert(settings(UpdraftConf.windowBytes.key -> "1m").isEmpty)
  }

  test("a query can switch the pool off") {
    assert(settings(endpoint, UpdraftConf.enabled.key -> "false").isEmpty)
  }

  test("every setting but the endpoint has a default or may be absent") {
    val read = settings(endpoint).get
    val options = read.clientOptions
    assert(options.replyTimeout.isZero && options.deadline.isZero)
    assert(options.windowBytes == (16L << 20))
    assert(read.clientOptions.windowBatches == 4)
    assert(read.clientOptions.maxHelpers == 7)
    assert(read.batchBytes == (1L << 20))
    assert(read.fallback == "fail")
    assert(read.unsupported == "local")
    assert(options.token.isEmpty)
    assert(!read.deterministic)
    assert(read.clientOptions.replayBytes == (64L << 20))
  }

  test("what is kept for a replay grows with the window") {
    val window = UpdraftConf.windowBytes.key -> "1g"
    assert(settings(endpoint, window).get.clientOptions.replayBytes == (4L << 30))
    val small = UpdraftConf.windowBytes.key -> "1k"
    assert(settings(endpoint, small).get.clientOptions.replayBytes == (64L << 20))
  }

  test(
    "an explicit fallback also says what unsupported functions mean, unless that is set itself"
  ) {
    val fallback = UpdraftConf.fallback.key
    val unsupported = UpdraftConf.unsupported.key
    assert(settings(endpoint, fallback -> "fail").get.unsupported == "fail")
    assert(settings(endpoint, fallback -> "local").get.unsupported == "local")
    assert(settings(
      endpoint,
      fallback -> "fail",
      unsupported -> "local"
    ).get.unsupported == "local")
    assert(settings(endpoint, fallback -> "local", unsupported -> "fail").get.unsupported == "fail")
  }

  test("a value that does not fit is refused with the setting, the value and what was expected") {
    val wrong = Seq(
      UpdraftConf.endpoint.key -> "http://pool:8815",
      UpdraftConf.fallback.key -> "maybe",
      UpdraftConf.maxHelpers.key -> "-1",
      UpdraftConf.batchBytes.key -> "1",
      UpdraftConf.connectTimeout.key -> "soon",
      UpdraftConf.enabled.key -> "yes please"
    )
    wrong.foreach { case (key, value) =>
      val error = intercept[IllegalArgumentException](settings(endpoint, key -> value))
      assert(error.getMessage.contains(key), error.getMessage)
      assert(error.getMessage.contains(value), error.getMessage)
    }
  }

  test("keys are unique, prefixed and written in camel case") {
    val keys = (UpdraftConf.entries ++ WriteConf.entries).map(_.key)
    assert(keys.distinct == keys)
    assert(keys.forall(_.matches("""spark\.updraft\.(udf|write)(\.[a-z][A-Za-z]*)+""")))
  }

  test("every default passes its own check") {
    (UpdraftConf.entries ++ WriteConf.entries)
      .filter(_.default.isDefined)
      .foreach(entry => entry.read(_ => None))
  }

  test("errors of the client name settings that exist") {
    val keys = (UpdraftConf.entries ++ WriteConf.entries).map(_.key)
    val ofPools = Peer.Setting.values.map(Peer.POOL.setting)
    assert(ofPools.filterNot(keys.contains).isEmpty)
    val shared = ofPools.map(_.replace(".udf.", ".write.")).filter(keys.contains)
    assert(shared.length == 8)
  }

  test("the token file is left to the calls of the client, which read it one by one") {
    val named = settings(
      endpoint,
      UpdraftConf.token.key -> "hush",
      UpdraftConf.tokenFile.key -> "/not/here"
    ).get.clientOptions
    assert(named.token == "hush")
    assert(named.tokenFile == "/not/here")
  }

  test("settings never print the token") {
    val read = settings(endpoint, UpdraftConf.token.key -> "hush").get
    assert(!read.toString.contains("hush"))
    assert(!read.connection.toString.contains("hush"))
  }

  test("what is written without a writer names the format and the setting") {
    val error =
      intercept[IllegalArgumentException](WriteConf.settings(
        new SQLConf,
        Map.empty,
        "updraft-parquet"
      ))
    assert(error.getMessage.contains("updraft-parquet"))
    assert(error.getMessage.contains(WriteConf.endpoint.key))
  }

  test("a file's command says delivery and pace as they are set") {
    val conf = new SQLConf
    conf.setConfString(WriteConf.endpoint.key, "grpc://writer:8816")
    conf.setConfString(WriteConf.delivery.key, "return")
    conf.setConfString(WriteConf.asynchronous.key, "false")
    val command = WriteConf.settings(conf, Map.empty, "updraft-orc").command().build()
    assert(command.getDelivery == Delivery.DELIVERY_RETURN)
    assert(command.getPace == Pace.PACE_SYNCHRONOUS)
    assert(!command.hasHoldGpu)
  }

  test("an option of a write wins over the session, in lower case too") {
    val conf = new SQLConf
    conf.setConfString(WriteConf.endpoint.key, "grpc://writer:8816")
    conf.setConfString(WriteConf.delivery.key, "direct")
    val options = Map(WriteConf.delivery.key -> "return", "spark.updraft.write.batchbytes" -> "1m")
    val settings = WriteConf.settings(conf, options, "updraft-orc")
    assert(settings.delivery == "return")
    assert(settings.batchBytes == (1L << 20))
    val ofClient = settings.clientOptions
    assert(ofClient.replyTimeout == Duration.ofMinutes(10) && ofClient.deadline.isZero)
    assert(ofClient.windowBytes == (4L << 20))
    val wrong = intercept[IllegalArgumentException](
      WriteConf.settings(conf, Map(WriteConf.delivery.key -> "post"), "updraft-orc")
    )
    assert(wrong.getMessage.contains(
      """spark.updraft.write.delivery = "post": expected direct or return"""
    ))
  }
}
