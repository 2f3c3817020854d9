//! Makes everything that lists methods from one table.

/// Makes `MethodName`, `MethodSections` and `build` from the entries
/// `Variant = "name", "Title" => type { sections it introduces }`.
macro_rules! methods {
    ($(
        $(#[$doc:meta])*
        $variant:ident = $name:literal, $title:literal => $method:ty {
            $($(#[$section_doc:meta])* $section:ident: $kind:ty,)*
        }
    )+) => {
        /// The methods there are, in the order of the paper's table 1, ours first, siblings last.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        pub enum MethodName {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)+
        }

        impl MethodName {
            /// Every method.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name used in configurations, on the command line and in saved states.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The name used in tables and plots.
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }
        }

        /// The parameters of all methods, one configuration section each.
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct MethodSections {
            $($($(#[$section_doc])* pub $section: $kind,)*)+
        }

        impl MethodSections {
            /// Refuses values out of range, in any section.
            pub fn check(&self, facts: &RunFacts) -> Result<(), OpdError> {
                $($(self.$section.check(facts)?;)*)+
                Ok(())
            }
        }

        /// Makes a method at its first batch.
        fn build(
            name: MethodName,
            sections: &MethodSections,
            facts: RunFacts,
        ) -> Box<dyn Method> {
            match name { $(MethodName::$variant => Box::new(<$method>::new(sections, facts)),)+ }
        }

        impl std::fmt::Display for MethodName {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for MethodName {
            type Err = OpdError;

            fn from_str(text: &str) -> Result<Self, OpdError> {
                let known = Self::ALL.iter().copied().find(|method| method.as_str() == text);
                known.ok_or_else(|| OpdError::Parameter {
                    key: "method",
                    value: format!("`{text}`"),
                    expected: format!(
                        "one of {}",
                        Self::ALL.iter().map(|method| method.as_str()).collect::<Vec<_>>().join(", ")
                    ),
                })
            }
        }
    };
}

pub(super) use methods;
