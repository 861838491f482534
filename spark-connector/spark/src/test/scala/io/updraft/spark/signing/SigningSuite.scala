// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.signing

import java.nio.file.{Files, Path}

import org.apache.spark.SparkFiles
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.LongType
import org.apache.spark.sql.updraft.SparkInternals.EvalType
import org.apache.spark.sql.updraft.{LocalSpark, PythonFunctions}
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.proto.v1.{Owner, Statement}
import io.updraft.spark.config.{UdfSettings, UpdraftConf}
import io.updraft.spark.reasons.FallbackReason

class SigningSuite extends AnyFunSuite {
  private val udf = PythonFunctions.udf("f", LongType, Nil, EvalType.Pickled)

  private def settings(keyFile: Option[Path]): UdfSettings = {
    val conf = new SQLConf
    conf.setConfString(UpdraftConf.endpoint.key, "grpc://pool:8815")
    keyFile.foreach(file => conf.setConfString(UpdraftConf.signingKeyFile.key, file.toString))
    UpdraftConf.settings(conf).get
  }

  test("an artifact that the driver does not have is a reason to stay, if the session signs") {
    KeyFiles.withFile(KeyFiles.known) { key =>
      KeyFiles.withFile("a table") { table =>
        LocalSpark(pageBytes = 1 << 20) { session =>
          session.sparkContext.addFile(table.toString)
          assert(Signing.problem(settings(Some(key)), Seq(udf)).isEmpty)
          val here = Path.of(SparkFiles.get(table.getFileName.toString))
          Files.delete(here)
          val reason = Signing.problem(settings(Some(key)), Seq(udf)).get
          assert(reason.name == FallbackReason.UnsignedArtifact.name)
          assert(reason.text.contains(s"file ${table.getFileName}: "))
          assert(Signing.problem(settings(None), Seq(udf)).isEmpty)
        }
      }
    }
  }

  test("a key that cannot be used signs nothing, and its setting is named") {
    KeyFiles.withFile("no key") { key =>
      val signing = settings(Some(key)).signing.get
      val error =
        intercept[IllegalArgumentException](Signing.ofNoFunction(signing, Owner.getDefaultInstance))
      assert(error.getMessage.contains(UpdraftConf.signingKeyFile.key))
    }
  }

  test("a statement about no function is signed for as long as one about a function") {
    KeyFiles.withFile(KeyFiles.known) { key =>
      val signing = settings(Some(key)).signing.get
      val signed = Signing.ofNoFunction(signing, Owner.newBuilder().setTenant("team").build())
      assert(KeyFiles.isSignedByKnown(signed))
      val said = Statement.parseFrom(signed.getStatement)
      assert(said.getOwner.getTenant == "team" && said.getCommandSha256Count == 0)
      val lifetime = said.getExpiresAtMilliseconds - said.getIssuedAtMilliseconds
      assert(lifetime == signing.lifetimeMilliseconds)
    }
  }
}
