// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.artifacts

import java.io.{BufferedInputStream, FileInputStream, InputStream}
import java.nio.file.Files
import java.nio.file.attribute.{BasicFileAttributes, FileTime}
import java.security.MessageDigest
import java.util.concurrent.ConcurrentHashMap

import scala.util.Using

import com.google.protobuf.ByteString
import org.apache.spark.sql.updraft.{ArtifactFile, SparkInternals}

/** Digest and size of an artifact, and a way to read the bytes. */
final case class Measured(sha256: ByteString, sizeBytes: Long, open: () => InputStream)

object Measured {

  /** Identity of a file's contents, as far as we can tell without reading the file. */
  private final case class Stamp(
      path: String,
      sizeBytes: Long,
      modified: FileTime,
      identity: AnyRef,
      isEncrypted: Boolean
  )

  private val BufferBytes = 1 << 20

  /** Number of cached artifacts at which the cache is cleared. Afterwards, artifacts are measured
    * again on demand.
    */
  private val MostKnown = 4096

  private[this] val known = new ConcurrentHashMap[Stamp, Measured]()

  /** Return the measured artifact. Measure it first if it is new to this executor; meanwhile, other
    * tasks that need the artifact wait.
    */
  def of(origin: ArtifactFile): Measured = {
    if (known.size() >= MostKnown) known.clear()
    known.computeIfAbsent(stamp(origin), _ => measure(origin))
  }

  private def stamp(origin: ArtifactFile): Stamp = {
    val attributes = Files.readAttributes(origin.file.toPath, classOf[BasicFileAttributes])
    Stamp(
      origin.file.getPath,
      attributes.size(),
      attributes.lastModifiedTime(),
      attributes.fileKey(),
      origin.isEncrypted
    )
  }

  private def measure(origin: ArtifactFile): Measured =
    if (origin.file.isDirectory) {
      val archive = SparkInternals.temporaryFile("updraft", ".tar")
      DirectoryArchive.write(origin.file.toPath, archive)
      measure(() => new FileInputStream(archive))
    } else {
      measure(() => read(origin))
    }

  /** Return the bytes of a file as the stock worker would read them. */
  def read(origin: ArtifactFile): InputStream = {
    val stream = new BufferedInputStream(new FileInputStream(origin.file))
    if (origin.isEncrypted) SparkInternals.decrypted(stream) else stream
  }

  private def measure(open: () => InputStream): Measured = Using.resource(open()) { stream =>
    val digest = MessageDigest.getInstance("SHA-256")
    val buffer = new Array[Byte](BufferBytes)
    var sizeBytes = 0L
    var length = stream.read(buffer)
    while (length >= 0) {
      digest.update(buffer, 0, length)
      sizeBytes += length
      length = stream.read(buffer)
    }
    Measured(ByteString.copyFrom(digest.digest()), sizeBytes, open)
  }
}
