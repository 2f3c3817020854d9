//! A figure as a PNG, for slides and chats that take no SVG: its SVG, drawn with a font that is built in, so that the
//! picture is the same on every machine.

use std::sync::{Arc, OnceLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};

use super::Figure;

/// Dots per point: 300 dots per inch.
const SCALE: f32 = 300.0 / 72.0;

/// A figure that cannot be drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrawError {
    /// The drawing cannot be read.
    #[error("the figure `{figure}` cannot be drawn")]
    Svg {
        /// The figure.
        figure: String,
        /// What the renderer says.
        source: resvg::usvg::Error,
    },
    /// The picture would have no pixels, or too many.
    #[error("the figure `{figure}` would be {width} x {height} pixels")]
    Size {
        /// The figure.
        figure: String,
        /// Columns of pixels.
        width: u32,
        /// Rows of pixels.
        height: u32,
    },
    /// The picture cannot be packed.
    #[error("the figure `{figure}` cannot be packed: {message}")]
    Pack {
        /// The figure.
        figure: String,
        /// What the packer says.
        message: String,
    },
}

/// The built-in font, read once.
fn fonts() -> Arc<Database> {
    static FONTS: OnceLock<Arc<Database>> = OnceLock::new();
    let load = || {
        let mut fonts = Database::new();
        fonts.load_font_data(dejavu::sans::regular().to_vec());
        fonts.load_font_data(dejavu::sans::bold().to_vec());
        fonts.set_sans_serif_family("DejaVu Sans");
        Arc::new(fonts)
    };
    FONTS.get_or_init(load).clone()
}

impl Figure {
    /// The figure as a PNG of 300 dots per inch.
    pub fn png(&self) -> Result<Vec<u8>, DrawError> {
        let figure = || self.name.clone();
        let options = Options { fontdb: fonts(), dpi: 72.0, ..Options::default() };
        let tree = Tree::from_str(&self.svg(), &options)
            .map_err(|source| DrawError::Svg { figure: figure(), source })?;
        let size = tree.size();
        let (width, height) =
            ((size.width() * SCALE).ceil() as u32, (size.height() * SCALE).ceil() as u32);
        let mut picture = Pixmap::new(width, height).ok_or_else(|| DrawError::Size {
            figure: figure(),
            width,
            height,
        })?;
        resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut picture.as_mut());
        picture
            .encode_png()
            .map_err(|error| DrawError::Pack { figure: figure(), message: error.to_string() })
    }
}
