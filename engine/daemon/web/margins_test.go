package web_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"xwarp/engine/daemon/web"
)

// TestMargins: a browser silently ignores an invalid CSS rule, and a page without margins still works. So the test
// checks the computed styles of the parts, and that the edges of a screenshot are empty.
func TestMargins(t *testing.T) {
	pages := web.New(web.Config{Snapshot: busy(), StatusPage: true})
	defer pages.Close()
	pages.Fill(280)
	srv := httptest.NewServer(pages)
	defer srv.Close()
	b := open(t)
	for _, scheme := range []string{"light", "dark"} {
		call(t, b, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: scheme}}})
		for _, c := range []struct {
			width, padding, margin int // CSS pixels; the page is at most 1240 wide
		}{{1600, 20, 180}, {1280, 20, 20}, {390, 12, 0}} {
			b.run(t, chromedp.EmulateViewport(int64(c.width), 900), chromedp.Navigate(srv.URL+"/"))
			b.until(t, `document.documentElement.dataset.ready === "yes"`)
			for _, part := range []string{"header", "main", "footer"} {
				style := eval[[]string](t, b, `(() => { const s = getComputedStyle(document.querySelector("`+part+`"));
					return [s.maxWidth, s.paddingLeft, s.paddingRight, s.marginLeft, s.marginRight]; })()`)
				pad, margin := fmt.Sprintf("%dpx", c.padding), fmt.Sprintf("%dpx", c.margin)
				if want := []string{"1240px", pad, pad, margin, margin}; !slices.Equal(style,
					want) {
					t.Errorf("%s, %d wide, %s: max-width, paddings, margins %v, want %v", scheme,
						c.width, part, style, want)
				}
			}
			if wide := eval[int](t, b, "document.documentElement.scrollWidth"); wide > c.width {
				t.Errorf("%s: the page is %d wide in a window of %d", scheme, wide, c.width)
			}
			picture := b.picture(t)
			side := c.margin + c.padding
			if n := content(picture, image.Rect(0, 0, side, picture.Bounds().Dy())); n > 0 {
				t.Errorf("%s, %d wide: %d pixels of the left edge are no background", scheme,
					c.width, n)
			}
			if n := content(picture, image.Rect(c.width-side, 0, c.width,
				picture.Bounds().Dy())); n > 0 {
				t.Errorf("%s, %d wide: %d pixels of the right edge are no background", scheme,
					c.width, n)
			}
			if n := content(picture, picture.Bounds()); n < 1000 {
				t.Errorf("%s, %d wide: %d pixels in all are no background", scheme, c.width, n)
			}
		}
	}
}

// picture returns a screenshot of the whole page, one pixel for each CSS pixel.
func (b *browser) picture(t *testing.T) image.Image {
	t.Helper()
	data, err := chromedp.Run(b, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// content counts the pixels of an area whose colour differs from that of the picture's corner.
func content(m image.Image, area image.Rectangle) (n int) {
	background := color.RGBAModel.Convert(m.At(0, 0))
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			if color.RGBAModel.Convert(m.At(x, y)) != background {
				n++
			}
		}
	}
	return n
}
