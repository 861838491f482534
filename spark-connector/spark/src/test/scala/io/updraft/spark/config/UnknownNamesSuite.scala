// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import org.scalatest.funsuite.AnyFunSuite

class UnknownNamesSuite extends AnyFunSuite {

  test("every setting is known, and what is not the connector's is not looked at") {
    (UpdraftConf.entries ++ WriteConf.entries ++ TraceConf.entries).foreach { entry =>
      assert(UnknownNames.unknownSetting(entry.key).isEmpty)
    }
    assert(UnknownNames.unknownSetting("spark.sql.extensions").isEmpty)
  }

  Seq(
    "spark.updraft.udf.endpiont" -> "spark.updraft.udf.endpoint",
    "spark.updraft.udf.connecttimeout" -> "spark.updraft.udf.connectTimeout",
    "spark.updraft.udf.tls.ca" -> "spark.updraft.udf.tls.caFile",
    "spark.updraft.writer.delivery" -> "spark.updraft.write.delivery",
    "spark.updraft.endpoint" -> "spark.updraft.udf.endpoint"
  ).foreach { case (misspelt, meant) =>
    test(s"$misspelt is taken for $meant") {
      assert(
        UnknownNames.unknownSetting(misspelt).contains(
          s"$misspelt is not a setting of Updraft and has no effect; did you mean $meant?"
        )
      )
    }
  }

  test("a name that is like none is not guessed") {
    val told = UnknownNames.unknownSetting("spark.updraft.colour").get
    assert(told.endsWith("docs/reference/connector.md lists the settings"))
  }

  test("an option of a write is known in lower case too, as Spark hands it over") {
    WriteConf.entries.foreach { entry =>
      assert(UnknownNames.unknownOption(entry.key).isEmpty)
      assert(UnknownNames.unknownOption(entry.key.toLowerCase).isEmpty)
    }
    assert(UnknownNames.unknownOption("compression").isEmpty)
  }

  test("a setting of functions is no option of a write") {
    val told = UnknownNames.unknownOption("spark.updraft.udf.tenant").get
    assert(told.startsWith("spark.updraft.udf.tenant is not an option of a write"))
    assert(told.endsWith("did you mean spark.updraft.write.tenant?"))
  }
}
