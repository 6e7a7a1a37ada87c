// VitePress's own theme with the fonts of the reader's system and the colours of the dashboard.
import DefaultTheme from 'vitepress/theme-without-fonts';
import './style.css';

// biome-ignore lint/style/noDefaultExport: VitePress reads the default export.
export default DefaultTheme;
