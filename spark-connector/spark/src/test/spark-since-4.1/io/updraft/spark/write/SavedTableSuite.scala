// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import java.nio.file.Files

import org.apache.spark.SparkException
import org.apache.spark.sql.updraft.LocalSpark
import org.scalatest.funsuite.AnyFunSuite

/** Tests of `saveAsTable` in the Spark that the connector is built against. This Spark release
  * drops the table in a separate command before the insert. Later patch releases drop the table in
  * the insert.
  */
class SavedTableSuite extends AnyFunSuite {
  private val confs = Seq(
    "spark.sql.warehouse.dir" -> Files.createTempDirectory("warehouse").toString,
    "spark.updraft.write.endpoint" -> "grpc://127.0.0.1:1",
    "spark.updraft.write.connectTimeout" -> "100ms"
  )

  test("saveAsTable drops nothing while no writer answers") {
    LocalSpark(1L << 20, confs: _*) { spark =>
      spark.range(10).write.format("parquet").saveAsTable("numbers")
      val error = intercept[SparkException] {
        spark.range(5).write.format("updraft-parquet").mode("overwrite").saveAsTable("numbers")
      }
      assert(error.getMessage.contains("cannot overwrite"), error.getMessage)
      assert(error.getMessage.contains("spark.updraft.write.endpoint"), error.getMessage)
      assert(spark.table("numbers").count() == 10)
    }
  }
}
