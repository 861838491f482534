// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.signing

import java.nio.file.{Files, Path}
import java.security.spec.X509EncodedKeySpec
import java.security.{KeyFactory, KeyPairGenerator, MessageDigest, Signature}
import java.util.{Base64, HexFormat}

import io.updraft.proto.v1.SignedStatement

/** Key files for tests, and a pool's check of a signature. */
object KeyFiles {

  /** First test vector of RFC 8032, section 7.1. */
  val KnownSeed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
  val KnownPublicKey = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"

  private val PrivatePrefix = "302e020100300506032b657004220420"
  private val PublicPrefix = "302a300506032b6570032100"

  def known: String = pem("PRIVATE KEY", hex(PrivatePrefix + KnownSeed))

  def generated(algorithm: String): String =
    pem(
      "PRIVATE KEY",
      KeyPairGenerator.getInstance(algorithm).generateKeyPair().getPrivate.getEncoded
    )

  def pem(label: String, bytes: Array[Byte]): String =
    s"-----BEGIN $label-----\n${Base64.getMimeEncoder.encodeToString(bytes)}\n-----END $label-----\n"

  def withFile(text: String)(body: Path => Unit): Unit = {
    val file = Files.createTempFile("key", ".pem")
    try body(Files.writeString(file, text))
    finally Files.delete(file): Unit
  }

  def hex(text: String): Array[Byte] = HexFormat.of().parseHex(text)

  def sha256(bytes: Array[Byte]): Seq[Byte] =
    MessageDigest.getInstance("SHA-256").digest(bytes).toSeq

  /** Return whether the known key has signed a statement. */
  def isSignedByKnown(signed: SignedStatement): Boolean = {
    val key = new X509EncodedKeySpec(hex(PublicPrefix + KnownPublicKey))
    val signature = Signature.getInstance("Ed25519")
    signature.initVerify(KeyFactory.getInstance("Ed25519").generatePublic(key))
    signature.update(signed.getStatement.toByteArray)
    signature.verify(signed.getSignature.toByteArray)
  }
}
