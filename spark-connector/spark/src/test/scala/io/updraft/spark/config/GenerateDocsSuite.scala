// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.nio.file.{Files, Path}

import org.scalatest.funsuite.AnyFunSuite

class GenerateDocsSuite extends AnyFunSuite {
  private val reference = Path.of("..", "..", "docs", "reference")

  GenerateDocs.pages.foreach { case (name, text) =>
    test(s"$name says what its source declares") {
      assert(Files.readString(reference.resolve(name)) == text, "run `make docs` to write it again")
    }
  }
}
