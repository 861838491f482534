// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.nio.file.{Files, Path}

import org.scalatest.funsuite.AnyFunSuite

class GenerateDocsSuite extends AnyFunSuite {
  private val page = Path.of("..", "..", "docs", "reference", "connector.md")

  test("the reference page says what the settings declare") {
    assert(
      Files.readString(page) == GenerateDocs.page,
      s"run io.updraft.spark.config.GenerateDocs to write $page again"
    )
  }
}
