// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.artifacts

import java.io.{ByteArrayInputStream, File}
import java.nio.file.attribute.FileTime
import java.nio.file.{Files, Path}
import java.util.Comparator

import scala.util.Using

import org.apache.commons.compress.archivers.tar.{TarArchiveEntry, TarArchiveInputStream}
import org.apache.spark.sql.updraft.{ArtifactFile, ArtifactRole, UserVariables}
import org.scalatest.funsuite.AnyFunSuite

class ArtifactsSuite extends AnyFunSuite {

  private def inDirectory(body: Path => Unit): Unit = {
    val directory = Files.createTempDirectory("artifacts")
    try body(directory)
    finally
      Using.resource(Files.walk(directory)) { paths =>
        paths.sorted(Comparator.reverseOrder[Path]()).forEach(path => Files.delete(path))
      }
  }

  private def measured(path: Path): Measured =
    Measured.of(ArtifactFile(ArtifactRole.Named("f"), path.toFile, isEncrypted = false))

  private def archived(directory: Path): Array[Byte] = {
    val target = File.createTempFile("artifacts", ".tar")
    try {
      DirectoryArchive.write(directory, target)
      Files.readAllBytes(target.toPath)
    } finally target.delete()
  }

  private def entries(archive: Array[Byte]): Seq[TarArchiveEntry] =
    Using.resource(new TarArchiveInputStream(new ByteArrayInputStream(archive))) { tar =>
      Iterator.continually(tar.getNextEntry).takeWhile(_ != null).toSeq
    }

  private def tree(root: Path): Path = {
    val directory = Files.createDirectories(root)
    Files.createDirectory(directory.resolve("bin"))
    val script = Files.writeString(directory.resolve("bin/run"), "#!/bin/sh\n")
    script.toFile.setExecutable(true)
    Files.writeString(directory.resolve("größe.txt"), "x" * 100)
    Files.createSymbolicLink(directory.resolve("bin/again"), Path.of("run"))
    directory
  }

  test("an artifact that changes is measured anew, also when its size stays") {
    inDirectory { directory =>
      val path = Files.writeString(directory.resolve("f"), "one")
      val first = measured(path)
      assert(first.sizeBytes == 3)
      assert(measured(path) eq first)
      Files.writeString(path, "two")
      Files.setLastModifiedTime(path, FileTime.fromMillis(1))
      assert(measured(path).sha256 != first.sha256)
    }
  }

  test("an empty artifact has a size and a digest") {
    inDirectory { directory =>
      val empty = measured(Files.createFile(directory.resolve("f")))
      assert(empty.sizeBytes == 0 && empty.sha256.size() == 32)
    }
  }

  test("a directory makes the same archive wherever and whenever it was unpacked") {
    inDirectory { root =>
      val one = tree(root.resolve("one"))
      val two = tree(root.resolve("two"))
      Files.setLastModifiedTime(two.resolve("bin/run"), FileTime.fromMillis(1))
      assert(archived(one).sameElements(archived(two)))
    }
  }

  test("an archive is the same after Python has imported from the directory") {
    inDirectory { root =>
      val directory = tree(root.resolve("one"))
      val before = archived(directory)
      Files.createDirectories(directory.resolve("bin/__pycache__/deeper"))
      Files.writeString(directory.resolve("bin/__pycache__/run.cpython-311.pyc"), "x")
      assert(archived(directory).sameElements(before))
    }
  }

  test("an archive has the names, the executables and the links of its directory") {
    inDirectory { root =>
      val found =
        entries(archived(tree(root.resolve("one")))).map(entry => entry.getName -> entry).toMap
      assert(found.keySet == Set("bin/", "bin/run", "bin/again", "größe.txt"))
      assert((found("bin/run").getMode & 0x40) != 0 && (found("größe.txt").getMode & 0x40) == 0)
      assert(found("bin/again").isSymbolicLink && found("bin/again").getLinkName == "run")
    }
  }

  test("of a link that leads elsewhere the file behind it is archived, and none of a directory") {
    inDirectory { root =>
      val directory = tree(root.resolve("one"))
      val outside = Files.writeString(root.resolve("outside"), "text")
      Files.createSymbolicLink(directory.resolve("up"), Path.of("../outside"))
      Files.createSymbolicLink(directory.resolve("absolute"), outside)
      Files.createSymbolicLink(directory.resolve("elsewhere"), root)
      Files.createSymbolicLink(directory.resolve("broken"), Path.of("/nowhere"))
      val found = entries(archived(directory)).map(entry => entry.getName -> entry).toMap
      assert(found("up").isFile && found("up").getSize == 4 && found("absolute").getSize == 4)
      assert(!found.contains("elsewhere/") && !found.contains("broken"))
    }
  }

  test("variables of the user travel, those that steer the worker do not") {
    val refused =
      Seq("PATH", "LD_PRELOAD", "PYTHONPATH", "SPARK_HOME", "UPDRAFT_X", "a-b", "", "1A")
    assert(Seq("MODEL", "_x", "AWS_REGION", "TZ").forall(UserVariables.travels))
    assert(!refused.exists(UserVariables.travels))
  }
}
