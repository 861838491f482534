// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.artifacts

import java.io.{BufferedOutputStream, File, FileOutputStream}
import java.nio.file.{Files, Path}

import scala.jdk.CollectionConverters._
import scala.util.Using

import org.apache.commons.compress.archivers.tar.{
  TarArchiveEntry,
  TarArchiveOutputStream,
  TarConstants
}

/** Tar archive of a directory. The bytes depend only on the directory's contents. If the driver and
  * the executors have unpacked the same archive of a session, all of them produce the same bytes.
  *
  * The archive omits compiled Python files. Importing from the directory creates such files on the
  * driver, but Python would not use them from the archive, because they do not match the
  * modification times set here.
  */
object DirectoryArchive {

  /** 1980-01-01, the first day that a zip file can represent. Python's zipfile module rejects
    * earlier modification times.
    */
  private val ModifiedSeconds = 315532800L

  private val ExecutableMode = Integer.parseInt("755", 8)
  private val PlainMode = Integer.parseInt("644", 8)

  def write(directory: Path, target: File): Unit =
    Using.resource(
      new TarArchiveOutputStream(new BufferedOutputStream(new FileOutputStream(target)), "UTF-8")
    ) { tar =>
      tar.setLongFileMode(TarArchiveOutputStream.LONGFILE_POSIX)
      tar.setBigNumberMode(TarArchiveOutputStream.BIGNUMBER_POSIX)
      tar.setAddPaxHeadersForNonAsciiNames(true)
      Using.resource(Files.walk(directory)) { paths =>
        paths
          .iterator()
          .asScala
          .filter(path => path != directory && !isCompiled(directory.relativize(path)))
          .toSeq
          .sortBy(_.toString)
          .foreach(add(tar, directory, _))
      }
    }

  private def isCompiled(path: Path): Boolean =
    path.iterator().asScala.exists(_.toString == "__pycache__")

  private def add(tar: TarArchiveOutputStream, directory: Path, path: Path): Unit = {
    val name = directory.relativize(path).toString
    if (Files.isSymbolicLink(path) && staysInside(directory, path)) {
      val link = described(new TarArchiveEntry(name, TarConstants.LF_SYMLINK), ExecutableMode)
      link.setLinkName(Files.readSymbolicLink(path).toString)
      tar.putArchiveEntry(link)
      tar.closeArchiveEntry()
    } else if (Files.isRegularFile(path)) {
      val mode = if (Files.isExecutable(path)) ExecutableMode else PlainMode
      val file = described(new TarArchiveEntry(name), mode)
      file.setSize(Files.size(path))
      tar.putArchiveEntry(file)
      Files.copy(path, tar)
      tar.closeArchiveEntry()
    } else if (Files.isDirectory(path) && !Files.isSymbolicLink(path)) {
      tar.putArchiveEntry(described(new TarArchiveEntry(name + "/"), ExecutableMode))
      tar.closeArchiveEntry()
    }
  }

  /** Return whether a link stays inside the directory. A link that leads outside means nothing on
    * another host, so the archive then contains the target file instead.
    */
  private def staysInside(directory: Path, link: Path): Boolean = {
    val target = Files.readSymbolicLink(link)
    !target.isAbsolute && link.getParent.resolve(target).normalize().startsWith(directory)
  }

  private def described(entry: TarArchiveEntry, mode: Int): TarArchiveEntry = {
    entry.setMode(mode)
    entry.setModTime(ModifiedSeconds * 1000)
    entry.setIds(0, 0)
    entry.setNames("", "")
    entry
  }
}
