import '@fontsource-variable/inter/wght.css';
import '@fontsource-variable/jetbrains-mono/wght.css';
import Theme from 'vitepress/theme-without-fonts';
import Layout from './Layout.vue';
import VersionSwitch from './VersionSwitch.vue';
import './style.css';

export default { extends: Theme, Layout, enhanceApp: ({ app }) => app.component('VersionSwitch', VersionSwitch) };
