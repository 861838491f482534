// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import java.nio.ByteBuffer
import java.nio.file.{Files, Path => LocalPath}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}
import org.apache.spark.SparkException
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.proto.v1.Receipt
import io.updraft.spark.config.WriteConf

class WrittenFileSuite extends AnyFunSuite {

  private def inDirectory(test: LocalPath => Unit): Unit =
    test(Files.createTempDirectory("written"))

  private def path(local: LocalPath): Path = new Path(local.toUri)

  private def receipt(bytes: Long): Receipt = Receipt.newBuilder().setFileBytes(bytes).build()

  test("a file that the writer stored where this executor does not see it is an error") {
    inDirectory { directory =>
      val file = new DirectFile(path(directory.resolve("part")), new Configuration)
      val missing = intercept[SparkException](file.complete(receipt(5)))
      assert(missing.getMessage.contains("no file"))
      assert(missing.getMessage.contains(s"${WriteConf.delivery.key} = return"))
      Files.writeString(directory.resolve("part"), "another")
      assert(intercept[SparkException](file.complete(receipt(5))).getMessage.contains("7 bytes"))
      file.complete(receipt(7))
    }
  }

  test("a returned file has the parts in order, and none is made where one is") {
    inDirectory { directory =>
      val target = directory.resolve("part")
      val file = new ReturnedFile(path(target), new Configuration)
      Seq("one ", "file").foreach(part => file.append(ByteBuffer.wrap(part.getBytes)))
      file.complete(receipt(8))
      assert(Files.readString(target) == "one file")
      intercept[FileAlreadyExistsException](new ReturnedFile(path(target), new Configuration))
    }
  }

  test("a returned file that is given up is gone") {
    inDirectory { directory =>
      val file = new ReturnedFile(path(directory.resolve("part")), new Configuration)
      file.append(ByteBuffer.wrap("half".getBytes))
      file.abandon()
      assert(!Files.exists(directory.resolve("part")))
    }
  }
}
