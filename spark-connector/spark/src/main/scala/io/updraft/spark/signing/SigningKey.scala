// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.signing

import java.io.IOException
import java.nio.charset.StandardCharsets
import java.nio.file.attribute.PosixFilePermission
import java.nio.file.{AccessDeniedException, Files, NoSuchFileException, Path}
import java.security.interfaces.EdECPrivateKey
import java.security.spec.{NamedParameterSpec, PKCS8EncodedKeySpec}
import java.security.{
  GeneralSecurityException,
  InvalidKeyException,
  KeyFactory,
  KeyPairGenerator,
  MessageDigest,
  PublicKey,
  SecureRandom,
  Signature
}
import java.util.Base64
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicReference

import com.google.protobuf.ByteString
import org.apache.spark.internal.Logging

import io.updraft.proto.v1.{SignedStatement, Statement}
import io.updraft.spark.config.UpdraftConf

/** Key with which a driver signs the functions that it plans. */
final class SigningKey private (privateKey: EdECPrivateKey, publicKey: PublicKey) {

  /** Digest of the public key. Pools identify the key by this digest. */
  val sha256: ByteString = {
    // The encoding of an Ed25519 key ends with the key's 32 raw bytes (RFC 8410).
    val raw = publicKey.getEncoded.takeRight(SigningKey.RawBytes)
    ByteString.copyFrom(MessageDigest.getInstance("SHA-256").digest(raw))
  }

  def sign(statement: Statement): SignedStatement = {
    val bytes = statement.toByteArray
    SignedStatement
      .newBuilder()
      .setStatement(ByteString.copyFrom(bytes))
      .setSignature(ByteString.copyFrom(signature(bytes)))
      .setKeySha256(sha256)
      .build()
  }

  private def signature(bytes: Array[Byte]): Array[Byte] = {
    val signature = Signature.getInstance(SigningKey.Algorithm)
    signature.initSign(privateKey)
    signature.update(bytes)
    signature.sign()
  }

  /** Return whether the private and the public key belong together. */
  private def isWhole: Boolean = {
    val probe = Signature.getInstance(SigningKey.Algorithm)
    probe.initVerify(publicKey)
    probe.update(SigningKey.Probe)
    probe.verify(signature(SigningKey.Probe))
  }
}

object SigningKey extends Logging {
  private val Algorithm = "Ed25519"
  private val RawBytes = 32
  private val Probe = "updraft".getBytes
  private val Expected =
    "expected an Ed25519 key in a PEM file as `openssl genpkey -algorithm ed25519` writes it"
  private val Pem =
    "(?s)\\s*-----BEGIN PRIVATE KEY-----(.*)-----END PRIVATE KEY-----\\s*".r

  /** Files whose permissions have been checked. */
  private val checked = ConcurrentHashMap.newKeySet[Path]()

  /** Text of the key file that was read last, and the key in it. The key is cached because building
    * a key takes longer than signing.
    */
  private val known = new AtomicReference(Option.empty[(String, SigningKey)])

  /** Read the key from the file, each time anew, because the file may have been replaced.
    *
    * @throws java.lang.IllegalArgumentException
    *   if the file is unusable; the message names the setting to correct
    */
  def read(file: String): SigningKey =
    try {
      val path = Path.of(file)
      val text = Files.readString(path, StandardCharsets.ISO_8859_1)
      if (checked.add(path)) warnOfReaders(path)
      known.get().filter(_._1 == text).map(_._2).getOrElse {
        val key = parse(text).getOrElse(throw unusable(file, Expected, None))
        known.set(Some(text -> key))
        key
      }
    } catch {
      case e: NoSuchFileException => throw unusable(file, "the driver has no such file", Some(e))
      case e: AccessDeniedException => throw unusable(file, "the driver may not read it", Some(e))
      case e: IOException => throw unusable(file, s"the driver cannot read it: $e", Some(e))
      case e: GeneralSecurityException => throw unusable(file, s"$Expected: $e", Some(e))
    }

  private def parse(text: String): Option[SigningKey] = text match {
    case Pem(base64) =>
      KeyFactory.getInstance(Algorithm).generatePrivate(decoded(base64)) match {
        case key: EdECPrivateKey => Some(new SigningKey(key, publicKeyOf(key))).filter(_.isWhole)
        case _ => None
      }
    case _ => None
  }

  private def decoded(base64: String): PKCS8EncodedKeySpec =
    try new PKCS8EncodedKeySpec(Base64.getMimeDecoder.decode(base64))
    catch { case e: IllegalArgumentException => throw new InvalidKeyException(e) }

  /** Return the public key. The JDK computes a public key only when it generates a key pair. So
    * this method passes the private key to the generator in place of random bytes.
    */
  private def publicKeyOf(key: EdECPrivateKey): PublicKey = {
    val seed = key.getBytes.orElseThrow(() =>
      new GeneralSecurityException("the provider of Ed25519 does not expose the key's bytes")
    )
    val generator = KeyPairGenerator.getInstance(Algorithm)
    generator.initialize(NamedParameterSpec.ED25519, new Chosen(seed))
    generator.generateKeyPair().getPublic
  }

  private final class Chosen(seed: Array[Byte]) extends SecureRandom {
    override def nextBytes(bytes: Array[Byte]): Unit =
      System.arraycopy(seed, 0, bytes, 0, bytes.length)
  }

  private def warnOfReaders(path: Path): Unit =
    try
      if (Files.getPosixFilePermissions(path).contains(PosixFilePermission.OTHERS_READ)) {
        logWarning(
          s"every user of this machine can read $path (${UpdraftConf.signingKeyFile.key}), and anyone with the key " +
            "can run code on every pool that trusts it: remove the permission (chmod o-r)"
        )
      }
    catch {
      case _: UnsupportedOperationException => // The file system has no permissions.
    }

  private def unusable(
      file: String,
      reason: String,
      cause: Option[Throwable]
  ): IllegalArgumentException = new IllegalArgumentException(
    s"""${UpdraftConf.signingKeyFile.key} = "$file": $reason""",
    cause.orNull
  )
}
