// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static com.tngtech.archunit.library.dependencies.SlicesRuleDefinition.slices;

import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.domain.Source;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.library.dependencies.SliceAssignment;
import com.tngtech.archunit.library.dependencies.SliceIdentifier;
import org.junit.jupiter.api.Test;

/** Rules on the dependencies between packages and between files. */
class PackagesTest {
  /** The client's classes and the generated messages, without the tests. */
  private static final JavaClasses CLASSES =
      new ClassFileImporter()
          .importUrl(Exchange.class.getProtectionDomain().getCodeSource().getLocation());

  private static final SliceAssignment FILES =
      new SliceAssignment() {
        @Override
        public SliceIdentifier getIdentifierOf(JavaClass javaClass) {
          // Messages generated from one .proto file depend on each other.
          return javaClass.getPackageName().equals(Exchange.class.getPackageName())
              ? javaClass
                  .getSource()
                  .flatMap(Source::getFileName)
                  .map(SliceIdentifier::of)
                  .orElseGet(SliceIdentifier::ignore)
              : SliceIdentifier.ignore();
        }

        @Override
        public String getDescription() {
          return "files";
        }
      };

  @Test
  void noFileKnowsOneThatKnowsItBeItByADetour() {
    slices().assignedFrom(FILES).should().beFreeOfCycles().check(CLASSES);
  }

  @Test
  void noPackageKnowsOneThatKnowsIt() {
    slices().matching("io.updraft.(**)").should().beFreeOfCycles().check(CLASSES);
  }

  @Test
  void theClientKnowsNeitherSparkNorScala() {
    noClasses()
        .should()
        .dependOnClassesThat()
        .resideInAnyPackage("org.apache.spark..", "io.updraft.spark..", "scala..")
        .check(CLASSES);
  }
}
