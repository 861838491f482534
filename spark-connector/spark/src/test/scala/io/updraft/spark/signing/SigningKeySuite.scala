// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.signing

import java.nio.file.{Files, Path}

import org.scalatest.funsuite.AnyFunSuite

import io.updraft.proto.v1.Statement
import io.updraft.spark.config.UpdraftConf

class SigningKeySuite extends AnyFunSuite {
  private val statement = Statement.newBuilder().setIssuedAtMilliseconds(1).build()

  private def refusal(file: Path): String =
    intercept[IllegalArgumentException](SigningKey.read(file.toString)).getMessage

  test("a statement is signed over its bytes, by the key whose digest is beside it") {
    KeyFiles.withFile(KeyFiles.known) { file =>
      val signed = SigningKey.read(file.toString).sign(statement)
      assert(Statement.parseFrom(signed.getStatement) == statement)
      assert(KeyFiles.isSignedByKnown(signed))
      val digest = KeyFiles.sha256(KeyFiles.hex(KeyFiles.KnownPublicKey))
      assert(signed.getKeySha256.toByteArray.toSeq == digest)
    }
  }

  test("a key is read anew each time") {
    KeyFiles.withFile(KeyFiles.known) { file =>
      val first = SigningKey.read(file.toString)
      Files.writeString(file, KeyFiles.generated("Ed25519"))
      val second = SigningKey.read(file.toString)
      assert(second.sha256 != first.sha256)
      assert(!KeyFiles.isSignedByKnown(second.sign(statement)))
    }
  }

  test("a file that is missing or is none is named with its setting") {
    val directory = Files.createTempDirectory("keys")
    try {
      val missing = refusal(directory.resolve("absent.pem"))
      assert(missing.startsWith(
        s"${UpdraftConf.signingKeyFile.key} = \"${directory.resolve("absent.pem")}\": "
      ))
      assert(missing.endsWith("the driver has no such file"))
      assert(refusal(directory).contains("the driver cannot read it"))
    } finally Files.delete(directory)
  }

  test("what is not an Ed25519 key in PKCS 8 is refused without a word of it") {
    val secret = KeyFiles.generated("Ed25519")
    val seed = KeyFiles.hex(KeyFiles.KnownSeed)
    val texts = Seq(
      "",
      "\u0000\u00ff",
      KeyFiles.generated("EC"),
      KeyFiles.generated("X25519"),
      KeyFiles.pem("PUBLIC KEY", seed),
      KeyFiles.pem("ENCRYPTED PRIVATE KEY", seed),
      KeyFiles.pem("PRIVATE KEY", seed),
      secret.replace("\n-----END", "A\n-----END")
    )
    texts.foreach { text =>
      KeyFiles.withFile(text) { file =>
        val message = refusal(file)
        assert(message.contains("openssl genpkey -algorithm ed25519"), text)
        assert(!text.linesIterator.exists(line => line.nonEmpty && message.contains(line)))
      }
    }
  }
}
