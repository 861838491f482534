// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark

import scala.jdk.CollectionConverters._

import com.tngtech.archunit.core.domain.{JavaClass, JavaClasses}
import com.tngtech.archunit.core.importer.ClassFileImporter
import com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses
import com.tngtech.archunit.library.dependencies.SlicesRuleDefinition.slices
import com.tngtech.archunit.library.dependencies.{SliceAssignment, SliceIdentifier}
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.client.Exchange

/** Rules on the dependencies between packages, between files and between modules. */
class PackagesSuite extends AnyFunSuite {

  /** Return the classes of the modules that contain these classes, without the tests. */
  private def modulesOf(classes: Class[_]*): JavaClasses = new ClassFileImporter().importUrls(
    classes.map(_.getProtectionDomain.getCodeSource.getLocation).asJava
  )

  private val connector = modulesOf(classOf[UpdraftExtensions])

  private object ByPackage extends SliceAssignment {
    override def getIdentifierOf(javaClass: JavaClass): SliceIdentifier =
      SliceIdentifier.of(javaClass.getPackageName)
    override def getDescription: String = "packages"
  }

  private object ByFile extends SliceAssignment {
    override def getIdentifierOf(javaClass: JavaClass): SliceIdentifier =
      // Classes of libraries have no known source file.
      javaClass.getSource.flatMap(_.getFileName).map[SliceIdentifier](file =>
        SliceIdentifier.of(javaClass.getPackageName, file)
      ).orElse(SliceIdentifier.ignore())
    override def getDescription: String = "files"
  }

  test("no package knows one that knows it, be it by a detour") {
    slices().assignedFrom(ByPackage).should().beFreeOfCycles().check(connector)
  }

  test("no file knows one that knows it, be it by a detour") {
    slices().assignedFrom(ByFile).should().beFreeOfCycles().check(connector)
  }

  test("what is visible only inside Spark's packages knows nothing of the connector's") {
    noClasses().that().resideInAPackage("org.apache.spark..")
      .should().dependOnClassesThat().resideInAPackage("io.updraft.spark..")
      .check(connector)
  }

  test("the client knows neither Spark nor the connector") {
    noClasses().that().resideInAPackage("io.updraft.client..")
      .should().dependOnClassesThat().resideInAnyPackage("org.apache.spark..", "io.updraft.spark..")
      .check(modulesOf(classOf[Exchange]))
  }
}
