// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.artifacts

import java.io.IOException
import java.nio.file.{Files, Path}

import org.apache.spark.SparkFiles
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.updraft.{FunctionArtifacts, LocalSpark, SessionFiles}
import org.scalatest.funsuite.AnyFunSuite

class SignedArtifactSuite extends AnyFunSuite {

  /** Run `body` with an artifact that the driver has signed, and with the artifact's path in this
    * process.
    */
  private def signed(body: (SignedArtifact, Path) => Unit): Unit = {
    val table = Files.writeString(Files.createTempFile("table", ".txt"), "one")
    try
      LocalSpark(pageBytes = 1 << 20) { session: SparkSession =>
        session.sparkContext.addFile(table.toString)
        val artifacts = FunctionArtifacts(Nil, Nil, Map.empty, SessionFiles.current)
        val listed = SessionArtifact.ofAll(artifacts).head.listed
        val here = Path.of(SparkFiles.get(table.getFileName.toString))
        body(new SignedArtifact(listed, artifacts), here)
      }
    finally Files.delete(table)
  }

  private def bytes(artifact: SignedArtifact): Seq[Byte] = {
    val stream = artifact.open()
    try stream.readAllBytes().toSeq
    finally stream.close()
  }

  test("an artifact that was signed is read where the executor has it") {
    signed((artifact, _) => assert(bytes(artifact) == "one".getBytes.toSeq))
  }

  test("an artifact that is another one on the executor is not sent, and the error names it") {
    signed { (artifact, here) =>
      Files.writeString(here, "other")
      val error = intercept[IOException](bytes(artifact))
      assert(error.getMessage.startsWith(s"file ${here.getFileName} on this executor ("))
      assert(error.getMessage.contains("differs from what the driver signed"))
    }
  }

  test("an artifact that the executor lacks is an error of reading") {
    signed { (artifact, here) =>
      Files.delete(here)
      intercept[IOException](bytes(artifact))
    }
  }
}
